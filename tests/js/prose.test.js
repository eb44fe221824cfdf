import assert from "node:assert/strict";
import test from "node:test";
import { Pieces } from "../../assets/js/trace/pieces.js";
import { align, forkOf, parting, prose, words } from "../../assets/js/trace/prose.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { small } from "./small.js";

const PIECES = { 0: "end", 8: "x y", 1: " a", 2: " cat", 3: "s", 4: ",", 5: " dog", 6: " ran", 7: "\n" };

/** A trace of these generated tokens, the reference's first; -1 is masked. */
function texts(...lists) {
  const header = { ...small().header, prompt_tokens: [9], length: 1 + lists[0].length, eos_id: 0 };
  const trace = new Trace({ header, pieces: PIECES });
  trace.lanes = lists.map((tokens, i) => ({ id: `${i}`, clamp: (t) => t, token: (p) => tokens[p - 1] }));
  trace.reference = trace.lanes[0];
  return trace;
}

const told = (trace, i = 1) =>
  prose(trace, trace.lanes[i], 0).map(({ text, kind, filled }) => `${filled ? "filled " : ""}${kind}:${text}`);

test("words are pieces up to the next white space, with their first position", () => {
  const trace = texts([1, 2, 3, 4, -1, -1, 5, 7, 6]);
  assert.deepEqual(
    words(trace, trace.lanes[0], 0).map(({ text, position }) => [text, position]),
    [
      [" a", 1],
      [" cats,", 2],
      [" ▁", 5],
      [" dog", 7],
      ["\n", 8],
      [" ran", 9],
    ],
  );
  assert.deepEqual(
    words(texts([1, 0, 2]), texts([1, 0, 2]).lanes[0], 0).map(({ text }) => text),
    [" a"],
  );
});

test("each of several ends ends a text, and is no common word of two texts", () => {
  const header = { ...small().header, prompt_tokens: [9], length: 5, eos_id: 0, ends: [0, 7] };
  const { ends, pieces } = new Trace({ header, pieces: PIECES });
  for (const [tokens, said] of [
    [[1, 7, 2, 0], [" a"]],
    [
      [1, 2, 0, 7],
      [" a", " cat"],
    ],
    [[7, 7, 7, 7], []],
  ]) {
    const trace = Object.assign(texts(tokens), { ends });
    assert.deepEqual(
      words(trace, trace.lanes[0], 0).map(({ text }) => text),
      said,
    );
  }
  const labels = Object.assign(new Pieces(ends), { map: pieces.map }).labels([1, 7, 0]);
  assert.deepEqual(labels.slice(1), ["■", "■"]);
});

test("a text ends before a stop, wherever in a token that begins, and a given end says nothing", () => {
  const pieces = { 0: "end", 1: " a", 2: " b[/An", 3: "swer] c", 4: " [/Answer]", 5: "[/Answer", 9: " x" };
  const { mask_id: mask } = small().header;
  const seen = (token) => (token === mask ? -1 : token);
  const said = (tokens, prompt = [9]) => {
    const length = prompt.length + tokens.length;
    const header = { ...small().header, prompt_tokens: prompt, length, eos_id: 0, stop: "[/Answer]" };
    const trace = new Trace({ header, pieces });
    const lane = { clamp: (t) => t, token: (p) => [...prompt.map(seen), ...tokens][p] };
    return words(trace, lane, 0).map(({ text, position, length: long }) => [text, position, long]);
  };
  const first = [" a", 1, 1];
  assert.deepEqual(said([1, 2, 3, 1]), [first, [" b", 2, 1]]);
  assert.deepEqual(said([1, 4, 1]), [first, [" ", 2, 1]]);
  assert.deepEqual(said([1, 0, 2, 3]), [first]);
  assert.deepEqual(said([1, 5, -1]), [
    [" a[/Answer", 1, 2],
    [" ▁", 3, undefined],
  ]);
  assert.deepEqual(said([-1, 2, 3]), [
    [" ▁", 1, undefined],
    [" b", 2, 1],
  ]);
  const around = said([1, 2, 3], [9, 4, 0, mask, 9]);
  assert.equal(around.map(([text]) => text).join(""), " x [/Answer] ▁ x a b");
});

test("of any two lists the same words are marked in both, and as many as can be", () => {
  const list = (text) => [...text].map((letter) => ({ text: letter }));
  const all = [""];
  for (const each of all) if (each.length < 4) all.push(`${each}a`, `${each}b`, `${each}c`);
  const longest = (a, b) => {
    if (!a || !b) return 0;
    if (a[0] === b[0]) return 1 + longest(a.slice(1), b.slice(1));
    return Math.max(longest(a.slice(1), b), longest(a, b.slice(1)));
  };
  for (const a of all)
    for (const b of all) {
      const flags = align(list(a), list(b));
      const marked = [a, b].map((text, i) => [...text].filter((_, at) => flags[i][at]).join(""));
      assert.deepEqual([marked[0], marked[0].length], [marked[1], longest(a, b)], `${a} beside ${b}`);
    }
});

test("the fork is the first word that differs, what comes back is calm again", () => {
  assert.deepEqual(told(texts([1, 2, 6, 0], [1, 5, 6, 0])), ["same:a", "fork: dog", "same: ran"]);
  assert.deepEqual(told(texts([1, 2, 6, 0], [5, 1, 2, 6])), ["fork:dog", "same: a cat ran"]);
  assert.deepEqual(told(texts([1, 2], [1, 2])), ["same:a cat"]);
  assert.deepEqual(told(texts([1, 2], [1, 5]), 0), ["same:a cat"]);
});

test("a sample that is shortened ends with an ellipsis", () => {
  const long = Array.from({ length: 80 }, (_, i) => (i % 9 ? 6 : 5));
  for (const trace of [texts(long), texts(long, long.with(3, 2))])
    for (const lane of trace.lanes) {
      trace.race = { last: 0, reached: () => 0 };
      assert.match(parting(trace, lane).at(-1).text, / …$/);
    }
});

test("what is still masked in either is no fork", () => {
  assert.deepEqual(told(texts([1, -1, 6], [1, 5, 6])), ["same:a", "other: dog", "same: ran"]);
  assert.deepEqual(told(texts([-1, -1], [-1, -1])), ["same:▁"]);
});

test("nothing parts after what is still to be written: it may become any number of words", () => {
  const forks = (...lists) => told(texts(...lists)).filter((part) => part.startsWith("fork"));
  assert.deepEqual(forks([1, -1, -1], [1, 2, 5]), []);
  assert.deepEqual(forks([1, -1, -1, 6], [1, -1, 5, 6]), []);
  assert.deepEqual(forks([1, 2, 5, 6], [1, -1, 6, 6]), []);
  assert.deepEqual(forks([1, 2, -1, 6], [1, 2, 3, 6]), [], "a cat may become cats");
  assert.deepEqual(forks([1, 2, 3, 6], [1, 2, -1, 6]), []);
  assert.deepEqual(forks([1, 2, -1, 6], [1, 5, -1, 6]), ["fork: dog"]);
  assert.deepEqual(forks([1, 0, 0], [1, 2, -1]), ["fork: cat"], "the other text is at its end");
  assert.deepEqual(forks([1, 2, 0], [1, 0, 0]), [], "and nothing of this one stands there");
});

test("white space inside a piece parts no words, and any token may be one", () => {
  const texted = (trace) => words(trace, trace.lanes[0], 0).map(({ text }) => text);
  assert.deepEqual(texted(texts([1, 8, 2])), [" ax y", " cat"]);
  const trace = Object.assign(texts([1, 0, 2]), { ends: new Set() });
  assert.deepEqual(texted(trace), [" aend", " cat"]);
});

test("a fork has the first token that differs, and both words", () => {
  const found = (...lists) => {
    const trace = texts(...lists);
    return forkOf(trace, trace.lanes[1], 0);
  };
  assert.deepEqual(found([1, 2, 0], [1, 5, 0]), { position: 2, spans: [[2], [2]], words: ["dog", "cat"] });
  assert.deepEqual(found([1, 2, 3, 6], [1, 2, 4, 6]), {
    position: 3,
    spans: [
      [2, 3],
      [2, 3],
    ],
    words: ["cat,", "cats"],
  });
  assert.deepEqual(found([1, 0, 0], [1, 2, 0]), { position: 2, spans: [[2], [2]], words: ["cat", "nothing more"] });
  assert.deepEqual(found([1, 7, 2, 0], [1, 2, 0, 0]).words, ["cat", "⏎"], "what cannot be seen is shown by its sign");
  assert.equal(found([1, 2], [1, 2]), null);
});

test("of a text with blanks all is read, and what fills them is marked", () => {
  const header = { ...small().header, prompt_tokens: [8, 1, 1, 4, 5], mask_id: 1, length: 6, eos_id: 0 };
  const trace = new Trace({ header, pieces: { ...PIECES, 8: "x y" } });
  const lane = (tokens) => ({ clamp: (t) => t, count: 1, token: (p) => tokens[p] });
  trace.lanes = [lane([8, 2, 3, 4, 5, 6]), lane([8, 2, 6, 4, 5, 0])];
  [trace.reference] = trace.lanes;
  assert.deepEqual(told(trace, 0), ["same:x y", "filled same: cats,", "same: dog", "filled same: ran"]);
  assert.deepEqual(told(trace), ["same:x y", "filled fork: cat", "filled other: ran,", "same: dog"]);
  const plain = new Trace({ header: { ...header, prompt_tokens: [8, 2] }, pieces: PIECES });
  assert.deepEqual([plain.textFrom, plain.fills, trace.textFrom], [2, false, 0]);
});
