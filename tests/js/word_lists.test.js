// Blanks from a list, and texts that are over: what a trace tells of them.

import assert from "node:assert/strict";
import test from "node:test";
import { logSoftmax, putWords, settled, slotLists } from "../../assets/js/decode/word_lists.js";
import { toWrite } from "../../assets/js/trace/blanks.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { decoder, every, pairs, raceOf } from "./small.js";

const SHAPE = { network: { vocab_size: 5 }, mask_id: 1 };

test("the words that agree with what is written compete together, and all their tokens are of one", () => {
  const lists = slotLists([{ at: 1, words: [[2, 3], [3, 4], [4, 2]] }], [2, 1, 1], SHAPE); // biome-ignore format: short
  const state = { masked: [0, 1, 1], tokens: [2, 1, 1] };
  const plan = { slots: [1, 2], chooses: [1, 1], listed: [0, 1] };
  const listed = Float64Array.from([0, 0, -1, -2, -3, 0, 0, -3, -1, -2]);
  const reading = () => ({ listed, tokens: [0, 0], score: [0, 0] });
  const run = { lists, state, policy: { scores: "confidence" } };
  const first = reading();
  const [found] = putWords(run, plan, first);
  assert.deepEqual(first.tokens, [2, 3], "-1 - 1 is more than -2 - 2 and -3 - 3");
  assert.deepEqual(first.score, [Math.exp(-1), Math.exp(-1)]);
  assert.equal(found.position, 1);
  assert.ok(Math.abs(found.shares.reduce((sum, share) => sum + share, 0) - 1) < 1e-12);
  const begun = { masked: [0, 0, 1], tokens: [2, 3, 1] };
  const second = reading();
  const [later] = putWords({ ...run, state: begun }, { slots: [2], chooses: [1], listed: [0] }, second);
  assert.equal(second.tokens[0], 4);
  assert.deepEqual(Array.from(later.shares), [0, 1, 0]);
  const other = { masked: [0, 0, 1], tokens: [2, 2, 1].map((token) => token + 10) };
  assert.deepEqual(putWords({ ...run, state: other }, { slots: [2], chooses: [1], listed: [0] }, reading()), []);
});

test("a list that no run can have is refused", () => {
  const message = "prompt 0 has a list at position 1 that it cannot have";
  for (const words of [[[2], [3, 4]], [[9]], [[1]], [[2, 3, 4]]])
    assert.throws(() => slotLists([{ at: 1, words }], [2, 1, 1], SHAPE), { name: "RangeError", message });
});

test("words of several lengths compete by their mean, one pass for each length, and what is behind moves", async () => {
  const asked = [];
  const engine = {
    memory: ({ length }) => length,
    read: async (_, { tokens }) => asked.push(Array.from(tokens)),
    logits: async (_, rows) => Float32Array.from({ length: 5 * rows.length }, (_, i) => (i % 5 === 3 ? 2 : 0)),
  };
  const ids = [4, 1, 1, 4, 1, 1];
  const lists = [
    { at: 1, words: [[2, 3], [3]] }, // biome-ignore format: short
    { at: 4, words: [[2, 3], [3, 2]] }, // biome-ignore format: short
  ];
  const made = await settled(engine, SHAPE, { ids, lists }, 1);
  assert.deepEqual(asked, [
    [4, 1, 4, 1, 1, 1],
    [4, 1, 1, 4, 1, 1, 1],
  ]);
  assert.deepEqual(made.ids, [4, 1, 4, 1, 1]);
  assert.deepEqual(made.lists, [
    { at: 1, words: [[3]] },
    { at: 3, words: [[2, 3], [3, 2]] }, // biome-ignore format: short
  ]);
});

test("log-probabilities of a row sum to one", () => {
  const found = logSoftmax(Float32Array.from([1, 2, 3, -4]), 2);
  for (const row of [found.subarray(0, 2), found.subarray(2)])
    assert.ok(Math.abs(Math.exp(row[0]) + Math.exp(row[1]) - 1) < 1e-12);
});

test("a trace tells the shares of words, and what an end filled and spared", () => {
  const steps = [
    { shares: [[2, 0.25, 0.75]], unmasked: pairs(2, 12) },
    { filled: pairs(3, 0), spared: 2 },
  ];
  const document = raceOf([every("a", steps)]);
  document.header.lists = [{ at: 2, words: [[12], [13]] }];
  const trace = Trace.parse(document);
  const [lane] = trace.lanes;
  assert.deepEqual(lane.shares(2, -1), null);
  assert.deepEqual(lane.shares(2, 1), [0.25, 0.75]);
  assert.equal(lane.token(3, 1), 0);
  assert.ok(lane.endsAt(1));
  assert.equal(trace.totals(lane, 1).spared, 2);
  assert.equal(trace.totals(lane, 1).activeRatio, 8 / 16);
  assert.throws(() => Trace.parse(raceOf([[decoder("a", "a", { kind: "lock" }), [{ spared: -1 }]]])));
});

test("a sentence tells of a prompt with lists what will be written", () => {
  assert.equal(toWrite("a __{b|c} and __", 0), "2 blanks, with words to choose from; nothing behind.");
  assert.equal(toWrite("a __{b|c}", 8), "1 blank, with words to choose from; then 8 tokens more.");
  assert.equal(toWrite("a __", 0), "1 blank of 2 tokens, nothing behind it.");
});
