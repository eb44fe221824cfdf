import assert from "node:assert/strict";
import { test } from "node:test";
import { blockSaid, fit } from "../../assets/js/form/schedule.js";

test("a block is at least half of the wanted one, else the text is one block, and it is said", () => {
  const found = (length, steps, wanted) => {
    const fitted = fit({ gen_length: length, steps, block_length: wanted }, 512);
    return [fitted.block_length, blockSaid(wanted, fitted).split(" ")[0]];
  };
  const cases = [
    [128, 128, 32, 32, ""],
    [127, 127, 32, 127, "One"],
    [254, 254, 32, 254, "One"],
    [100, 100, 32, 25, "Changed"],
    [48, 6, 32, 24, "Changed"],
    [62, 62, 61, 31, "Changed"],
    [62, 62, 30, 62, "One"],
    [9, 9, 1, 1, ""],
    [9, 9, null, 9, ""],
  ];
  for (const [length, steps, wanted, ...right] of cases) assert.deepEqual(found(length, steps, wanted), right);
});
