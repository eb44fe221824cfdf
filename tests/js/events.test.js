// The order of a run's events, which is not that in which they are asked for.

import assert from "node:assert/strict";
import test from "node:test";

import { inOrder } from "../../assets/js/decode/events.js";

test("events are applied by step, and within one so that what is locked can be written, and what is written locked", () => {
  const canvas = { batch: 1, lengths: [4], is_prompt: [1, 1, 0, 0], slot: (_, position) => position, mask_id: 1 };
  const event = (step, kind, position, token) => ({ step, kind, position, token, sequence: 0 });
  const asked = [
    { step: 1, kind: "rule", sequence: 0 },
    event(1, "lock", 3),
    event(1, "write", 3, 5),
    event(1, "mask", 2),
    event(1, "unlock", 2),
    event(0, "lock", 1),
  ];
  const order = inOrder(asked, canvas, 2, 9, { scores: "confidence" }).map(({ step, kind }) => `${step} ${kind}`);
  assert.deepEqual(order, ["0 lock", "1 unlock", "1 mask", "1 write", "1 lock", "1 rule"]);
});
