// The texts as prose: what a lane shares with the reference is calm, the first difference (the fork) can be clicked.
// Texts are aligned word by word, never position by position.

import { visible } from "./pieces.js";

const latest = new WeakMap(); // by lane: the step last asked for, and its words; several lanes are laid beside one

/**
 * A word of a lane's text.
 * @typedef {object} Word
 * @property {string} text with the white space before it
 * @property {number} position of its first token
 * @property {number} length in tokens
 * @property {boolean} filled whether it fills a blank of the prompt
 * @property {boolean} [masked] a gap that is still to be written
 */

/** The words of a lane's text after step t: a list of Word. */
export function words(trace, lane, t) {
  if (latest.get(lane)?.t !== t) latest.set(lane, { t, found: split(trace, lane, t) });
  return latest.get(lane).found;
}

function split(trace, lane, t) {
  const found = [];
  const end = trace.endOf(lane, t);
  let run = [];
  const close = (rest = "") => {
    const text = trace.pieces.text(run.map(({ token }) => token)) + rest;
    if (rest) run.push({ position: end.position });
    if (run.length)
      found.push({
        text,
        position: run[0].position,
        length: run.length,
        filled: trace.fills && run.some(({ position }) => !trace.given[position]),
      });
    run = [];
  };
  for (let position = trace.textFrom; position < end.position; position++) {
    const token = lane.token(position, t);
    if (trace.ends.has(token)) {
      close(); // one that is given says nothing
      continue;
    }
    if (token < 0) {
      close();
      if (!found.at(-1)?.masked) found.push({ text: " ▁", position, masked: true });
      continue;
    }
    if (/^\s/.test(trace.pieces.text([token]))) close();
    run.push({ token, position });
  }
  if (/^\s/.test(end.rest)) close();
  close(end.rest);
  return found;
}

/** “forest” (34), or the words of several lanes that differ there: “forest” / “wood” (34). Masked everywhere: position 34.
 * of: lanes; at(lane): after which of its steps. */
export function pinName(trace, cell, { of = trace.lanes, at = () => Infinity } = {}) {
  const tokens = of.filter(({ n }) => cell < n).map((lane) => lane.token(cell, at(lane)));
  const words = [...new Set(tokens.filter((token) => token >= 0))].map((token) => trace.word(token));
  return words.length ? `${words.join(" / ")} (${cell})` : `position ${cell}`;
}

/** What was asked: the prompt's words, or how many tokens it has where it has none. */
export const promptOf = (trace) => trace.header.prompt ?? `${trace.header.prompt_tokens.length} token ids`;

/** The text that a lane has written after step t, without what follows its end. */
export const textOf = (trace, lane, t) =>
  words(trace, lane, t)
    .map(({ text }) => text)
    .join("")
    .trim();

/** How many words two lists have alike at their start, and, of the rest, at their end. */
function alikeAtEnds(a, b) {
  const most = Math.min(a.length, b.length);
  let head = 0;
  let tail = 0;
  while (head < most && a[head].text === b[head].text) head++;
  while (tail < most - head && a.at(-1 - tail).text === b.at(-1 - tail).text) tail++;
  return [head, tail];
}

/** Which of two lists of words stand in a longest common subsequence, as two lists of flags. */
export function align(a, b) {
  const [head, tail] = alikeAtEnds(a, b);
  const [own, other] = [a, b].map((list) => list.slice(head, list.length - tail)); // what is between
  const same = (i, j) => own[i].text === other[j].text;
  const width = other.length + 1;
  const length = new Uint16Array((own.length + 1) * width);
  for (let i = own.length - 1; i >= 0; i--)
    for (let j = other.length - 1; j >= 0; j--)
      length[i * width + j] = same(i, j)
        ? length[(i + 1) * width + j + 1] + 1
        : Math.max(length[(i + 1) * width + j], length[i * width + j + 1]);
  const shared = [a, b].map((list) => list.map((_, i) => i < head || i >= list.length - tail));
  for (let i = 0, j = 0; i < own.length && j < other.length; ) {
    if (same(i, j)) {
      shared[0][head + i++] = true;
      shared[1][head + j++] = true;
    } else if (length[(i + 1) * width + j] >= length[i * width + j + 1]) i++;
    else j++;
  }
  return shared;
}

/** Whether the word at i of a list may go on to be the other's: what follows it is still to be written. */
const begun = (list, other, i) => list[i + 1]?.masked && other[i]?.text.startsWith(list[i].text);

/**
 * The index of the first word that differs, -1 where none does.
 * Also -1 where a gap stands before it: nobody knows how many words it will hold.
 */
function forkAmong(own, other) {
  const at = own.findIndex(({ text, masked }, i) => masked || text !== other[i]?.text);
  const open = own[at]?.masked || other[at]?.masked || begun(own, other, at) || begun(other, own, at);
  return open ? -1 : at;
}

/** The positions of a word among a lane's; of the one after the last, where its text ends. */
function spanOf({ n, promptLength }, list, which) {
  const { position, length } = list[which] ?? { position: promptLength, length: 0, ...list.at(-1) };
  const from = list[which] ? position : Math.min(position + length, n - 1);
  return Array.from({ length: list[which] ? length : 1 }, (_, i) => from + i);
}

/**
 * Where a lane's text parts from the reference's at the cursor's step, or null.
 * {position: of the first token that differs, words: [the lane's, the reference's], spans: the positions of both words}
 */
export function forkOf(trace, lane, step) {
  const lanes = [lane, trace.reference];
  const at = lanes.map((each) => trace.race.reached(each, step));
  const [own, other] = lanes.map((each, i) => words(trace, each, at[i]));
  const which = forkAmong(own, other);
  if (which < 0) return null;
  const spans = [own, other].map((list) => spanOf(trace, list, which));
  const differs = (p) => lane.token(p, at[0]) !== trace.reference.token(p, at[1]);
  const position = spans[0].find(differs) ?? spans[0][0];
  const texts = [own, other].map((list) => list[which]?.text ?? "nothing more");
  const [a, b] = texts.map((text) => text.trim());
  const shown = a === b || !a || !b ? texts.map((text) => visible(text, { trim: true })) : [a, b]; // white space may be all that differs
  return { position, spans, words: shown };
}

/**
 * A lane's text beside the reference's at the cursor's step: [{text, kind, filled}].
 * kind: "same", "fork" (the first word that differs) or "other". filled: whether it fills a blank.
 */
export function prose(trace, lane, step) {
  const own = words(trace, lane, trace.race.reached(lane, step));
  const other = words(trace, trace.reference, trace.race.reached(trace.reference, step));
  const [shared] = align(own, other);
  const fork = forkAmong(own, other);
  const parts = [];
  own.forEach(({ text, filled = false }, i) => {
    const calm = shared[i] ? "same" : "other";
    const kind = i === fork ? "fork" : calm;
    const last = parts.at(-1);
    if (last?.kind === kind && last.filled === filled && kind !== "fork") last.text += text;
    else parts.push({ text: i ? text : text.trimStart(), kind, filled });
  });
  return parts;
}

/** The same of a lane beside its touches: what both texts begin with is left out but for some words. */
export function proseFromFork(trace, lane, step) {
  const parts = prose(trace, lane, step);
  const textOf = (each) =>
    words(trace, each, trace.race.reached(each, step))
      .map(({ text }) => text)
      .join("");
  const [own, other] = trace.lanes.map((each) => textOf(each).trimStart());
  let common = 0;
  while (common < own.length && own[common] === other[common]) common++;
  const cut = own.lastIndexOf(" ", common - LEADS);
  if (cut <= 0) return parts;
  let left = cut;
  const shown = parts.map((part) => {
    const gone = Math.min(left, part.text.length);
    left -= gone;
    return { ...part, text: part.text.slice(gone) };
  });
  return [{ text: "…", kind: "same", filled: false }, ...shown.filter(({ text }) => text)];
}

const LEADS = 90; // characters that lead to a fork beside touches
const BEFORE = 40; // characters of what both have said that lead to the fork
const AFTER = 40;

/** The part of a lane's finished text around its fork, as `prose` gives it, after what leads there; else how it begins. One with blanks is whole. */
export function parting(trace, lane) {
  const { reference, pieces, header } = trace;
  const { last } = trace.race;
  if (trace.fills) return prose(trace, lane, last);
  const prompt = (header.prompt || pieces.text(header.prompt_tokens)).trim();
  const other = lane === reference ? trace.lanes.find((each) => each !== reference) : lane;
  const fork = other && other !== reference ? forkOf(trace, other, last) : null;
  const own = words(trace, lane, trace.race.reached(lane, last));
  const at = fork ? own.findLastIndex(({ position }) => position <= fork.position) : -1;
  const text = (list) => list.map((each) => each.text).join("");
  if (at < 0) return [{ text: upToFullStop(prompt + text(own), BEFORE + AFTER), kind: "same" }];
  return [
    { text: fromFullStop(prompt + text(own.slice(0, at)), BEFORE), kind: "same" },
    { text: own[at].text, kind: lane === reference ? "same" : "fork" },
    { text: upToFullStop(text(own.slice(at + 1)), AFTER), kind: lane === reference ? "same" : "other" },
  ];
}

/** The end of a text from a whole sentence on, or from a word on where that is too long. */
function fromFullStop(text, most) {
  if (text.length <= most) return text;
  const end = text.slice(-most);
  const stop = end.match(/[.!?]["”]?\s+/);
  if (stop) return end.slice(stop.index + stop[0].length);
  return `… ${end.slice(end.indexOf(" ") + 1)}`;
}

/** The beginning of a text up to a full stop, or to a word where that is too far. */
function upToFullStop(text, most) {
  if (text.length <= most) return text;
  const found = [...text.slice(0, most).matchAll(/[.!?]["”]?(?=\s)/g)].at(-1);
  if (found) return `${text.slice(0, found.index + found[0].length)} …`;
  return `${text.slice(0, text.lastIndexOf(" ", most))} …`;
}
