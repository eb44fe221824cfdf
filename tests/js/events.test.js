// The order of a run's events, which is not that in which they are asked for, and what a run never chooses.

import assert from "node:assert/strict";
import test from "node:test";

import { readDecoder } from "../../assets/js/decode/choices.js";
import { inOrder } from "../../assets/js/decode/events.js";
import { Run } from "../../assets/js/decode/run.js";

test("events are applied by step, and within one so that what is locked can be written, and what is written locked", () => {
  const canvas = { total: 4, given: [1, 1, 0, 0], mask_id: 1 };
  const event = (step, kind, position, token) => ({ step, kind, position, token });
  const asked = [
    { step: 1, kind: "rule" },
    event(1, "lock", 3),
    event(1, "write", 3, 5),
    event(1, "mask", 2),
    event(1, "unlock", 2),
    event(0, "lock", 1),
  ];
  const order = inOrder(asked, canvas, 2, 9).map(({ step, kind }) => `${step} ${kind}`);
  assert.deepEqual(order, ["0 lock", "1 unlock", "1 mask", "1 write", "1 lock", "1 rule"]);
});

test("what is never chosen is the mask, and the end of a text where a model has one and it is asked for", () => {
  const network = { vocab_size: 9, n_layers: 1, d_model: 4, n_heads: 1, n_kv_heads: 1, d_ff: 4, max_length: 64 };
  const settings = { gen_length: 2, steps: 2, block_length: 2, temperature: 0, seed: 0, cfg_scale: 0 };
  const [compute, unmask] = [{ kind: "everything" }, { kind: "low_confidence" }];
  const banned = (ends, suppress_eos) => {
    const shape = { network, mask_id: 1, pad_id: 0, ends };
    const decoder = readDecoder({ settings: { ...settings, suppress_eos }, compute, unmask });
    return [...new Run(shape, [3], decoder).plan().banned];
  };
  assert.deepEqual(
    [banned([0, 5], true), banned([0], false), banned([], true), banned([], false)],
    [[1, 0], [1], [1], [1]],
  );
});

test("numbers that JSON does not have come as text, in a group of settings, too", () => {
  const settings = { gen_length: 2, steps: 2, block_length: 2, temperature: 0, seed: 0, cfg_scale: 0 };
  const compute = { kind: "lock", epsilon: "inf", percentile: null, unlock: { epsilon_unlock: "-inf", period: 8 } };
  const read = readDecoder({ settings, compute, unmask: { kind: "low_confidence" } }).compute;
  assert.deepEqual(
    [read.epsilon, read.percentile, read.unlock.epsilon_unlock, read.unlock.period],
    [Number.POSITIVE_INFINITY, null, Number.NEGATIVE_INFINITY, 8],
  );
});
