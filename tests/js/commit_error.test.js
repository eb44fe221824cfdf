// What a step's choices would have been with every position computed, beside the choices that it made.

import assert from "node:assert/strict";
import test from "node:test";

import { Shadow } from "../../assets/js/decode/commit_error.js";

test("each commit is beside the best score of its own rank, whatever their order", async () => {
  const scores = [0.2, 0.9, 0.5]; // with every position computed, of the positions 1 to 3
  const engine = {
    memory: () => ({}),
    read: () => ({ score: Float64Array.from(scores) }),
    logits: () => Float32Array.of(1, 2, 3, 3, 2, 1),
  };
  const shadow = new Shadow(engine, { mask_id: 1, ends: [], network: { vocab_size: 3 } }, { cfg_scale: 0 });
  shadow.add({
    index: 0,
    given: Uint8Array.of(1, 0, 0, 0),
    computed: Uint8Array.of(1, 1, 1, 0),
    newly_unmasked: Uint8Array.of(0, 1, 1, 0),
    masked: Uint8Array.of(0, 0, 0, 1),
    written: new Uint8Array(4),
    open: Uint8Array.of(0, 1, 1, 1),
    tokens: Int32Array.of(0, 2, 2, 1),
    scores: "confidence",
    commit_logits: Float32Array.of(1, 2, 3, 1, 2, 3),
  });
  const [found] = await Array.fromAsync(shadow.result());
  assert.deepEqual([...found.position], [1, 2]);
  assert.deepEqual(
    [...found.regret].map((value) => Math.round(10 * value)),
    [3, 0],
  );
  assert.deepEqual([...found.changed], [0, 1]);
  assert.ok(found.error[0] === 0 && found.error[1] > 0.5);
});
