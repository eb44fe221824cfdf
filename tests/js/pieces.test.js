import assert from "node:assert/strict";
import test from "node:test";

import { Pieces, visible } from "../../assets/js/pieces.js";

const pieces = new Pieces();
pieces.add({ 0: "<end>", 1: "Once", 2: " upon", 3: "\n", 9: [1, 0xff], 10: [0xc3], 11: [0xa9] });
pieces.add({ 12: [0xf0], 13: [0x9f], 14: [0x98], 15: [0x80] });

test("white space, control and direction characters are made visible", () => {
  const shown = ["", " ", "a b", "\n\t\r", "\0", "\u202e", "\u00ad", " the"].map((text) => visible(text));
  assert.deepEqual(shown, ["∅", "␣", "a b", "⏎⇥␍", "␀", "‹202E›", "‹00AD›", " the"]);
  assert.deepEqual([visible(" the", { trim: true }), visible("  ", { trim: true })], ["the", "␣␣"]);
});

test("a name is text, bytes or a number", () => {
  const names = [2, 3, 9, 99].map((id) => pieces.name(id));
  assert.deepEqual(names, [" upon", "⏎", "01 FF", "#99"]);
});

test("neighbouring bytes show as the character that they make, others as bytes", () => {
  assert.deepEqual(pieces.labels([1, 10, 11, 2, 0, 99, -1], 0), ["Once", "é", "‥", "upon", "end", "#99", ""]);
  assert.deepEqual(pieces.labels([12, 13, 14, 15, 11, 10], 0), ["😀", "‥", "‥", "‥", "A9", "C3"]);
  assert.deepEqual(pieces.labels([10, -1, 11], 0), ["C3", "", "A9"]);
});

test("running text joins bytes, shows a stretch of masks once and stops at the end", () => {
  assert.equal(pieces.text([1, -1, -1, 10, 11, 99, -1]), "Once▁é#99▁");
  assert.equal(pieces.text([1, 2, 0, 1], "▁", 0), "Once upon");
});
