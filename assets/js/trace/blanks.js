// Reads blanks in a prompt's text as `LanguageModel.encode` does, and describes what a run will write.

import { count } from "../dom.js";

/**
 * The pattern of a blank. letters: the part of a character set that lists the characters that may not touch a blank.
 */
export const blankBetween = (letters) => String.raw`(?<![${letters}_\\])_{2,}(?![${letters}_\\])`;
/** The pattern with the browser's letters. The tokenizer uses the server's, of another edition of Unicode. */
export const BLANK = blankBetween(String.raw`\p{L}\p{N}`);
/** The pattern of the optional list after a blank. */
export const LIST = String.raw`(?:\{(?<list>[^{}]*)\})?`;
const LISTED = 4; // the most blanks whose sizes are listed

/** The sentence with which a run refuses a prompt without a word. */
export const EMPTY = "Prompt is empty: write a few words for the model to continue.";

/** The characters that Python's `str.strip` removes. `trim` removes others. */
const SPACES =
  "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000";

/** Whether a text has no word, as the server reads it. */
export const isEmpty = (text) => Array.from(text).every((character) => SPACES.includes(character));

/** A text without white space at its ends, as Python's `str.strip` returns it. */
export function stripped(text) {
  const characters = Array.from(text);
  const isWord = (character) => !SPACES.includes(character);
  return characters.slice(Math.max(0, characters.findIndex(isWord)), characters.findLastIndex(isWord) + 1).join("");
}

/** The number of underscores of every blank in a text. It is the number of tokens of a blank without a list. */
export const blanksOf = (text) => Array.from(text.matchAll(new RegExp(BLANK, "gu")), ([blank]) => blank.length);

const hasLists = (text) => Array.from(text.matchAll(new RegExp(BLANK + LIST, "gu"))).some(({ groups }) => groups.list);

/** A sentence about what a run will write. length: the number of tokens after the prompt. */
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

/**
 * The form's values as a run takes them. If the prompt has blanks, steps and a block length of at least the length
 * become null: the run then counts all masks.
 */
export function withBlanks({ steps, block_length: block, ...values }) {
  const follows = (value) => (blanksOf(values.prompt ?? "").length && value >= values.gen_length ? null : value);
  return { ...values, steps: follows(steps), block_length: follows(block) };
}
