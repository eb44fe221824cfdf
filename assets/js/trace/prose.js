// The texts of lanes as prose. Words that a lane shares with the reference are distinguished from words that differ.
// The first difference is the fork. Texts are aligned word by word, never position by position.

import { visible } from "./pieces.js";

const latest = new WeakMap(); // by lane: the latest step whose words were asked for, and the words

/**
 * A word of a lane's text.
 * @typedef {object} Word
 * @property {string} text the word with the white space before it
 * @property {number} position the position of its first token
 * @property {number} length the number of its tokens
 * @property {boolean} filled whether it fills a blank of the prompt
 * @property {boolean} [masked] whether it is a gap: masked positions in place of words
 */

/** The words of a lane's text after step t: a list of Word. */
export function words(trace, lane, t) {
  if (latest.get(lane)?.t !== t) latest.set(lane, { t, list: split(trace, lane, t) });
  return latest.get(lane).list;
}

/** The words of a lane's text at the cursor's step. */
const wordsAt = (trace, lane, step) => words(trace, lane, trace.race.reached(lane, step));

const joined = (list) => list.map(({ text }) => text).join("");

function split(trace, lane, t) {
  const laneWords = [];
  const end = trace.endOf(lane, t);
  let run = [];
  const close = (rest = "") => {
    const text = trace.pieces.text(run.map(({ token }) => token)) + rest;
    if (rest) run.push({ position: end.position });
    if (run.length)
      laneWords.push({
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
      close(); // an end token in the prompt has no text
      continue;
    }
    if (token < 0) {
      close();
      if (!laneWords.at(-1)?.masked) laneWords.push({ text: " ▁", position, masked: true });
      continue;
    }
    if (/^\s/.test(trace.pieces.text([token]))) close();
    run.push({ token, position });
  }
  if (/^\s/.test(end.rest)) close();
  close(end.rest);
  return laneWords;
}

/**
 * The name of a pinned cell: “forest” (34), or “forest” / “wood” (34) if the lanes differ.
 * A cell that is masked in all lanes is "position 34".
 * @param {Lane[]} options.of the lanes whose tokens are named
 * @param {function(Lane): number} options.at returns the step of a lane after which its token is named
 */
export function pinName(trace, cell, { of = trace.lanes, at = () => Infinity } = {}) {
  const tokens = of.filter(({ n }) => cell < n).map((lane) => lane.token(cell, at(lane)));
  const words = [...new Set(tokens.filter((token) => token >= 0))].map((token) => trace.word(token));
  return words.length ? `${words.join(" / ")} (${cell})` : `position ${cell}`;
}

/** The text of the prompt, or else the number of its tokens in words. */
export const promptOf = (trace) => trace.header.prompt ?? `${trace.header.prompt_tokens.length} token ids`;

/** The text of a lane after step t, up to its end. */
export const textOf = (trace, lane, t) => joined(words(trace, lane, t)).trim();

/** [head, tail]: the number of equal words at the beginning of two lists, and at the end of the rest of both. */
function alikeAtEnds(a, b) {
  const most = Math.min(a.length, b.length);
  let head = 0;
  let tail = 0;
  while (head < most && a[head].text === b[head].text) head++;
  while (tail < most - head && a.at(-1 - tail).text === b.at(-1 - tail).text) tail++;
  return [head, tail];
}

/** Two lists of flags: which words of both lists belong to a longest common subsequence. */
export function align(a, b) {
  const [head, tail] = alikeAtEnds(a, b);
  const [aMiddle, bMiddle] = [a, b].map((list) => list.slice(head, list.length - tail)); // without equal ends
  const same = (i, j) => aMiddle[i].text === bMiddle[j].text;
  const width = bMiddle.length + 1;
  const length = new Uint16Array((aMiddle.length + 1) * width);
  for (let i = aMiddle.length - 1; i >= 0; i--)
    for (let j = bMiddle.length - 1; j >= 0; j--)
      length[i * width + j] = same(i, j)
        ? length[(i + 1) * width + j + 1] + 1
        : Math.max(length[(i + 1) * width + j], length[i * width + j + 1]);
  const shared = [a, b].map((list) => list.map((_, i) => i < head || i >= list.length - tail));
  for (let i = 0, j = 0; i < aMiddle.length && j < bMiddle.length; ) {
    if (same(i, j)) {
      shared[0][head + i++] = true;
      shared[1][head + j++] = true;
    } else if (length[(i + 1) * width + j] >= length[i * width + j + 1]) i++;
    else j++;
  }
  return shared;
}

/**
 * Whether the word i of a list may become the word of the other list: a gap follows, and the other word begins alike.
 */
const begun = (list, other, i) => list[i + 1]?.masked && other[i]?.text.startsWith(list[i].text);

/**
 * The index of the first word that differs, -1 if no word differs.
 * It is -1, too, if a gap comes before the difference: nobody knows how many words will fill the gap.
 */
function forkAmong(laneWords, otherWords) {
  const at = laneWords.findIndex(({ text, masked }, i) => masked || text !== otherWords[i]?.text);
  const isGap = laneWords[at]?.masked || otherWords[at]?.masked;
  const isOpen = isGap || begun(laneWords, otherWords, at) || begun(otherWords, laneWords, at);
  return isOpen ? -1 : at;
}

/** The positions of the word number `which` of a lane. For the word after the last one: the position after the text. */
function spanOf({ n, promptLength }, list, which) {
  const { position, length } = list[which] ?? { position: promptLength, length: 0, ...list.at(-1) };
  const from = list[which] ? position : Math.min(position + length, n - 1);
  return Array.from({ length: list[which] ? length : 1 }, (_, i) => from + i);
}

/**
 * The fork of a lane's text from the reference's text at the cursor's step, or null: {position, words, spans}.
 * position: the position of the first token that differs. words: the lane's word and the reference's word.
 * spans: the positions of both words.
 */
export function forkOf(trace, lane, step) {
  const { reference, race } = trace;
  const laneStep = race.reached(lane, step);
  const referenceStep = race.reached(reference, step);
  const lists = [words(trace, lane, laneStep), words(trace, reference, referenceStep)];
  const which = forkAmong(...lists);
  if (which < 0) return null;
  const spans = lists.map((list) => spanOf(trace, list, which));
  const differs = (p) => lane.token(p, laneStep) !== reference.token(p, referenceStep);
  const position = spans[0].find(differs) ?? spans[0][0];
  const texts = lists.map((list) => list[which]?.text ?? "nothing more");
  return { position, spans, words: tellingApart(texts) };
}

/** Two texts without white space at their ends. If nothing else differs, the white space is made visible instead. */
function tellingApart(texts) {
  const [a, b] = texts.map((text) => text.trim());
  if (a && b && a !== b) return [a, b];
  return texts.map((text) => visible(text, { trim: true }));
}

/**
 * A lane's text, compared with the reference's text at the cursor's step: [{text, kind, filled}].
 * kind: "same", "fork" (the first word that differs) or "other". filled: whether the text fills a blank.
 */
export function prose(trace, lane, step) {
  const laneWords = wordsAt(trace, lane, step);
  const referenceWords = wordsAt(trace, trace.reference, step);
  const [shared] = align(laneWords, referenceWords);
  const fork = forkAmong(laneWords, referenceWords);
  const parts = [];
  laneWords.forEach(({ text, filled = false }, i) => {
    const calm = shared[i] ? "same" : "other";
    const kind = i === fork ? "fork" : calm;
    const last = parts.at(-1);
    if (last?.kind === kind && last.filled === filled && kind !== "fork") last.text += text;
    else parts.push({ text: i ? text : text.trimStart(), kind, filled });
  });
  return parts;
}

/** The result of `prose` for a touched trace. The common beginning of both texts is left out, apart from some words. */
export function proseFromFork(trace, lane, step) {
  const parts = prose(trace, lane, step);
  const [original, touched] = trace.lanes.map((shown) => joined(wordsAt(trace, shown, step)).trimStart());
  let common = 0;
  while (common < original.length && original[common] === touched[common]) common++;
  const cut = original.lastIndexOf(" ", common - LEADS);
  if (cut <= 0) return parts;
  let left = cut;
  const shown = parts.map((part) => {
    const gone = Math.min(left, part.text.length);
    left -= gone;
    return { ...part, text: part.text.slice(gone) };
  });
  return [{ text: "…", kind: "same", filled: false }, ...shown.filter(({ text }) => text)];
}

const LEADS = 90; // characters before the fork that `proseFromFork` shows
const BEFORE = 40; // characters before the fork that `parting` shows
const AFTER = 40; // characters after the fork that `parting` shows

/**
 * The part of a lane's finished text around its fork, in the form of `prose`.
 * If there is no fork, it is the beginning of the text. A text with blanks is not shortened.
 */
export function parting(trace, lane) {
  const { reference, pieces, header } = trace;
  const { last } = trace.race;
  if (trace.fills) return prose(trace, lane, last);
  const prompt = (header.prompt || pieces.text(header.prompt_tokens)).trim();
  const isReference = lane === reference;
  const compared = isReference ? trace.lanes.find((other) => other !== reference) : lane;
  const fork = compared ? forkOf(trace, compared, last) : null;
  const laneWords = wordsAt(trace, lane, last);
  const at = fork ? laneWords.findLastIndex(({ position }) => position <= fork.position) : -1;
  if (at < 0) return [{ text: upToFullStop(prompt + joined(laneWords), BEFORE + AFTER), kind: "same" }];
  const leading = fromFullStop(prompt + joined(laneWords.slice(0, at)), BEFORE);
  const following = upToFullStop(joined(laneWords.slice(at + 1)), AFTER);
  return [
    { text: leading, kind: "same" },
    { text: laneWords[at].text, kind: isReference ? "same" : "fork" },
    { text: following, kind: isReference ? "same" : "other" },
  ];
}

/** The end of a text, at most `most` characters. It begins with a sentence, or else with a word. */
function fromFullStop(text, most) {
  if (text.length <= most) return text;
  const end = text.slice(-most);
  const stop = end.match(/[.!?]["”]?\s+/);
  if (stop) return end.slice(stop.index + stop[0].length);
  return `… ${end.slice(end.indexOf(" ") + 1)}`;
}

/** The beginning of a text, at most `most` characters. It ends with a sentence, or else with a word. */
function upToFullStop(text, most) {
  if (text.length <= most) return text;
  const stop = [...text.slice(0, most).matchAll(/[.!?]["”]?(?=\s)/g)].at(-1);
  if (stop) return `${text.slice(0, stop.index + stop[0].length)} …`;
  return `${text.slice(0, text.lastIndexOf(" ", most))} …`;
}
