import assert from "node:assert/strict";
import test from "node:test";
import { blockSaid, fit, wantsOf } from "../../assets/js/form/schedule.js";
import { blanksOf, toWrite, withBlanks } from "../../assets/js/trace/blanks.js";

test("what a run will write is said in a sentence", () => {
  for (const [prompt, length, told] of [
    ["Tom found a __ and a ___.", 64, "2 blanks of 2 and 3 tokens, then 64 more."],
    ["__", 0, "1 blank of 2 tokens, nothing behind it."],
    ["__ __ __ __ ____", 1, "5 blanks of 12 tokens in all, then 1 more."],
    [
      "Once __init__ a__b \\\\__",
      8,
      "8 tokens will follow. For a blank, type two underscores or more (__): one for each of its tokens.",
    ],
    [" \n", 8, "Prompt is empty: write a few words for the model to continue."],
    ["Once", 0, "Nothing to write: leave a blank (__), or set a length."],
  ])
    assert.equal(toWrite(prompt, length), told);
  assert.deepEqual(blanksOf("(__) ___, ____"), [2, 3, 4]);
});

test("beside blanks, steps and blocks that follow the length are those of all masks; without a length they follow", () => {
  const values = (prompt, gen_length, steps, block_length) => withBlanks({ prompt, gen_length, steps, block_length });
  assert.deepEqual(values("a __", 64, 64, 32), { prompt: "a __", gen_length: 64, steps: null, block_length: 32 });
  assert.deepEqual(values("a", 64, 64, 32), { prompt: "a", gen_length: 64, steps: 64, block_length: 32 });
  const none = fit({ gen_length: 0, steps: 40, block_length: 8 }, 512);
  assert.deepEqual(values("a __", none.gen_length, none.steps, none.block_length).steps, null);
  assert.deepEqual(wantsOf(none), { gen_length: 0, steps: null, block_length: null });
});

test("a length that fits exactly beside the prompt stays", () => {
  const lengths = [19, 20, 21].map((length) => fit({ gen_length: length }, 20).gen_length);
  assert.deepEqual(lengths, [19, 20, 16]);
});

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
