import assert from "node:assert/strict";
import test from "node:test";
import { Pcg64, seeded } from "../../assets/js/decode/noise.js";

const drawn = (key, skipped) => {
  const bits = new Pcg64(key);
  bits.advance(skipped);
  return [...bits.fill(new Float64Array(3))];
};

test("numbers are those of numpy's PCG64(SeedSequence(key)), also far ahead", () => {
  assert.deepEqual(drawn([0, 0], 0), [0.6369616873214543, 0.2697867137638703, 0.04097352393619469]);
  assert.deepEqual(drawn([7, 3, 1], 10 ** 6), [0.7403021641962212, 0.3369398120936038, 0.25983440691634163]);
  assert.deepEqual(drawn([2 ** 32, 5], 1), [0.11212920241750313, 0.4983964476657645, 0.3780718050175613]);
  const [seed, far] = [2n ** 53n + 1n, 2 ** 52 + 12345];
  assert.deepEqual(drawn([seed, 130], far), [0.5165907971220923, 0.6606803057482481, 0.9754822520144362]);
});

test("a key of more words than the pool holds is mixed in whole", () => {
  const state = [2130651902, 4158861383, 1678071113, 4149942755, 2175170151, 704866743];
  assert.deepEqual([...seeded([1, 2, 3, 4, 5], 6)], state);
});

test("what is skipped is what would have been drawn", () => {
  const all = new Pcg64([5, 6]).fill(new Float64Array(40));
  for (const skipped of [0, 1, 2, 17, 37])
    assert.deepEqual(drawn([5, 6], skipped), [...all.slice(skipped, skipped + 3)]);
});
