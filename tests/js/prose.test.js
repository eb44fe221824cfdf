import assert from "node:assert/strict";
import test from "node:test";

import { align, prose, words } from "../../assets/js/prose.js";
import { Trace } from "../../assets/js/trace.js";
import { small } from "./small.js";

const PIECES = { 0: "end", 1: " a", 2: " cat", 3: "s", 4: ",", 5: " dog", 6: " ran", 7: "\n" };

/** A trace of these generated tokens, the reference's first; -1 is masked. */
function texts(...lists) {
  const header = { ...small().header, prompt_tokens: [9], length: 1 + lists[0].length, eos_id: 0 };
  const trace = new Trace({ header, pieces: PIECES });
  trace.lanes = lists.map((tokens, i) => ({ id: `${i}`, clamp: (t) => t, token: (p) => tokens[p - 1] }));
  trace.reference = trace.lanes[0];
  return trace;
}

const told = (trace, i = 1) => prose(trace, trace.lanes[i], 0).map(({ text, kind }) => `${kind}:${text}`);

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

test("a longest common subsequence", () => {
  const list = (text) => [...text].map((letter) => ({ text: letter }));
  const flags = (a, b) => align(list(a), list(b)).map((each) => each.map(Number).join(""));
  assert.deepEqual(flags("abcd", "abd"), ["1101", "111"]);
  assert.deepEqual(flags("xaby", "abz"), ["0110", "110"]);
  assert.deepEqual(flags("", "ab"), ["", "00"]);
});

test("the fork is the first word that differs, what comes back is calm again", () => {
  assert.deepEqual(told(texts([1, 2, 6, 0], [1, 5, 6, 0])), ["same:a", "fork: dog", "same: ran"]);
  assert.deepEqual(told(texts([1, 2, 6, 0], [5, 1, 2, 6])), ["fork:dog", "same: a cat ran"]);
  assert.deepEqual(told(texts([1, 2], [1, 2])), ["same:a cat"]);
  assert.deepEqual(told(texts([1, 2], [1, 5]), 0), ["same:a cat"]);
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
