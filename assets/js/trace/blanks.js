// Blanks in a prompt's text, as `LanguageModel.encode` reads them, and what a run will write.

import { count } from "../dom.js";

/** The pattern of a blank. letters: what stands in a set of characters for those that may not touch it. */
export const blankBetween = (letters) => String.raw`(?<![${letters}_\\])_{2,}(?![${letters}_\\])`;
export const BLANK = blankBetween(String.raw`\p{L}\p{N}`); // the browser's letters: the tokenizer has the server's
/** The pattern of the list behind a blank, if there is one. */
export const LIST = String.raw`(?:\{(?<list>[^{}]*)\})?`;
const LISTED = 4;

/** Of a prompt without a word: the sentence with which a run refuses it. */
export const EMPTY = "Prompt is empty: write a few words for the model to continue.";

/** White space of Python's `str.strip`, which is not that of `trim`. */
const SPACES =
  "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000";

/** Whether a text has no word, as the server reads it. */
export const isEmpty = (text) => Array.from(text).every((character) => SPACES.includes(character));

/** A text without the white space around it, as Python's `str.strip` has it. */
export function stripped(text) {
  const characters = Array.from(text);
  const isWord = (character) => !SPACES.includes(character);
  return characters.slice(Math.max(0, characters.findIndex(isWord)), characters.findLastIndex(isWord) + 1).join("");
}

/** The numbers of underscores of a text's blanks. A blank has as many tokens, unless it has a list. */
export const blanksOf = (text) => Array.from(text.matchAll(new RegExp(BLANK, "gu")), ([blank]) => blank.length);

const hasLists = (text) => Array.from(text.matchAll(new RegExp(BLANK + LIST, "gu"))).some(({ groups }) => groups.list);

/** What a run of a prompt will write, in a sentence. length: of what follows the prompt. */
export function toWrite(prompt, length) {
  const blanks = blanksOf(prompt);
  const follows = `${count(length, "token")} will follow. For a blank, type two underscores or more (__): one for each of its tokens.`;
  if (isEmpty(prompt)) return EMPTY;
  if (!blanks.length) return length ? follows : "Nothing to write: leave a blank (__), or set a length.";
  if (hasLists(prompt)) {
    const rest = length ? `then ${count(length, "token")} more` : "nothing behind";
    return `${count(blanks.length, "blank")}, with words to choose from; ${rest}.`;
  }
  const all = blanks.reduce((sum, size) => sum + size, 0);
  const sizes = [blanks.slice(0, -1).join(", "), blanks.at(-1)].filter(Boolean).join(" and ");
  const amount = blanks.length > LISTED ? `${all} tokens in all` : `${sizes} tokens`;
  const rest = length ? `then ${length} more` : "nothing behind it";
  return `${count(blanks.length, "blank")} of ${amount}, ${rest}.`;
}

/** The form's values as a run takes them: beside blanks, steps and blocks that follow the length are those of all masks. */
export function withBlanks({ steps, block_length: block, ...values }) {
  const follows = (value) => (blanksOf(values.prompt ?? "").length && value >= values.gen_length ? null : value);
  return { ...values, steps: follows(steps), block_length: follows(block) };
}
