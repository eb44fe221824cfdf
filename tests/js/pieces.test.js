import assert from "node:assert/strict";
import test from "node:test";
import { placeInPrompt, wordsApart } from "../../assets/js/touch/words.js";
import { Pieces, visible } from "../../assets/js/trace/pieces.js";

const pieces = new Pieces(new Set([0]));
pieces.add({ 0: "<end>", 1: "Once", 2: " upon", 3: "\n", 9: [1, 0xff], 10: [0xc3], 11: [0xa9] });
pieces.add({ 12: [0xf0], 13: [0x9f], 14: [0x98], 15: [0x80] });

test("control and direction characters are made visible from the first to the last of their kind, and no others", () => {
  const hidden = "7f 9f ad 61c 200b 200f 2028 202e 2060 206f feff fff0 fffb".split(" ");
  const plain = "21 7e a0 a1 ac ae 61b 61d 200a 2010 2027 202f 205f 2070 fefe ffef fffc".split(" ");
  const shown = (hex) => visible(`a${String.fromCodePoint(Number.parseInt(hex, 16))}b`);
  assert.deepEqual(
    hidden.map(shown),
    hidden.map((hex) => `a‹${hex.toUpperCase().padStart(4, "0")}›b`),
  );
  assert.deepEqual(
    plain.map(shown),
    plain.map((hex) => `a${String.fromCodePoint(Number.parseInt(hex, 16))}b`),
  );
  assert.deepEqual(
    ["a\nb", "a\tb", "a\rb", "a\x01b", "a\x1fb", "a b"].map((text) => visible(text)),
    ["a⏎b", "a⇥b", "a␍b", "a␁b", "a␟b", "a b"],
  );
  assert.deepEqual(
    ["\u00a0", " "].map((text) => visible(text, { trim: true })),
    ["⍽", "␣"],
  );
});

test("bytes of a byte-order mark, of a character at the end, and beside token 0", () => {
  const own = new Pieces();
  own.add({ 0: [0xc3], 1: [0xa9], 2: [0xef, 0xbb, 0xbf], 3: [1, 0xff], 4: "a" });
  assert.deepEqual(own.labels([0, 1]), ["é", "‥"]);
  assert.deepEqual(own.labels([4, 1, 0, 1]), ["a", "A9", "é", "‥"]);
  assert.deepEqual(own.labels([3, 0]), ["01 FF", "C3"]);
  assert.equal(own.text([4, 2, 4]), "a\ufeffa");
});

test("a name is text, bytes or a number", () => {
  const names = [2, 3, 9, 99, 0].map((id) => pieces.name(id));
  assert.deepEqual(names, [" upon", "⏎", "01 FF", "#99", "■ end of the text"]);
});

test("neighbouring bytes show as the character that they make, others as bytes", () => {
  assert.deepEqual(pieces.labels([1, 10, 11, 2, 0, 99, -1]), ["Once", "é", "‥", "upon", "■", "#99", ""]);
  assert.deepEqual(pieces.labels([12, 13, 14, 15, 11, 10]), ["😀", "‥", "‥", "‥", "A9", "C3"]);
  assert.deepEqual(pieces.labels([10, -1, 11]), ["C3", "", "A9"]);
});

test("running text joins bytes, shows a stretch of masks once and stops at the end", () => {
  assert.equal(pieces.text([1, -1, -1, 10, 11, 99, -1]), "Once▁é#99▁");
});

test("no two buttons write the same word", () => {
  const pieces = new Pieces();
  pieces.add({ 1: " Her", 2: "Her", 3: " dog", 4: "Her", 5: " ", 6: "\u00a0" });
  assert.deepEqual(wordsApart([1, 3], pieces), ["Her", "dog"]);
  assert.deepEqual(wordsApart([1, 2, 3], pieces), ["␣Her", "Her", "dog"]);
  assert.deepEqual(wordsApart([1, 2, 4], pieces), ["␣Her", "Her #2", "Her #4"]);
  assert.deepEqual(wordsApart([5, 6], pieces), ["␣", "⍽"]);
});

test("a token of a prompt is found behind those before it, whose letters it may share", () => {
  const words = ["was", " a", " cat", " a", " cat"];
  const given = words.map(() => true);
  const trace = { given, pieces: { name: (id) => words[id] }, header: { prompt_tokens: [0, 1, 2, 3, 4] } };
  const found = words.map((_, position) => placeInPrompt(trace, "was a cat a cat", position));
  assert.deepEqual(found, [0, 4, 6, 10, 12]);
});

test("a tokenizer that takes a text into little more than bytes was made for another kind", () => {
  const told = (text, size) => {
    const parts = Array.from({ length: Math.ceil(text.length / size) }, (_, i) => text.slice(i * size, (i + 1) * size));
    const own = new Pieces();
    own.add({ ...parts });
    return own.isForeign(parts.map((_, i) => i));
  };
  const story = "Tom had a small red boat.";
  assert.deepEqual([told(story, 4), told(story, 3), told(story, 1), told("a b c d", 1)], [false, false, true, false]);
});

test("words of many tokens are rare; names are left out", () => {
  const own = new Pieces();
  own.add({ 1: "The", 2: " qu", 3: "ark", 4: "s", 5: " dog", 6: " Zy", 7: "xw", 8: "vu", 9: ".", 10: [0xc3] });
  assert.equal(own.isRare([1, 5, 5, 9]), false);
  assert.equal(own.isRare([1, 2, 3, 4, 9]), true);
  assert.equal(own.isRare([1, 2, 3, 4, 5, 5, 9]), false, "5 tokens of 3 words");
  assert.equal(own.isRare([1, 6, 7, 8, 5, 9]), false, "a name");
  assert.equal(own.isRare([1, 2, 10, 10, 9]), true, "bytes go on with a word");
  assert.equal(own.isRare([1, 9]), false);
});
