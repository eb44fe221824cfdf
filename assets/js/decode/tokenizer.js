// Converts text to token ids and back, by Hugging Face's tokenizer in JavaScript. It mirrors `LanguageModel.encode`.

import { Tokenizer } from "@huggingface/tokenizers";
import { blankBetween, LIST, stripped } from "../trace/blanks.js";

const FALLBACK_BYTE = /^<0x([0-9A-Fa-f]{2})>$/;
const LONE_HALF = /\p{Surrogate}/u;
const LETTER = "a";
const MOST_WORDS = 64; // the most words of a list
const UNCLOSED = "prompt has a blank whose list must end with a brace, as in __{red|blue}";
const BEGINNINGS = [LETTER, ".", "0", "x", "-", ")", "q", "7"]; // see #continued
const EXACT = { skip_special_tokens: false, clean_up_tokenization_spaces: false };
const SET = /\[(?:\\.|[^\]\\])*\]/g; // a set of characters in the source of a pattern
const PROPERTY = /\\p\{(\w+)\}/g;
const UNPRINTED = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u; // characters that Python's `str.isprintable` refuses
/** GPT-2's pattern, by which a byte-level tokenizer splits a text if its file names no other pattern. */
const GPT2 = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`;

/** The characters that represent bytes in byte-level BPE vocabularies, GPT-2's and later ones. */
function byteAlphabet() {
  const isPlain = (b) => (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b !== 0xad);
  const bytes = Array.from({ length: 256 }, (_, b) => b);
  const others = bytes.filter((b) => !isPlain(b));
  const plain = bytes.filter(isPlain).map((b) => [String.fromCharCode(b), b]);
  return new Map([...plain, ...others.map((b, n) => [String.fromCharCode(256 + n), b])]);
}

/**
 * Ranges as text for a set of characters. ranges: [first, last, first, last, ...]. notation: "x" for \x{…}, "u" for
 * \u{…}.
 */
function rangesOf(ranges, notation) {
  const ends = ranges.map((code) => `\\${notation}{${code.toString(16)}}`);
  return ends.map((end, i) => (i % 2 ? `-${end}` : end)).join("");
}

/** The source of a pattern, in which ranges replace the Unicode properties that `classes` lists. */
function spelled(pattern, classes) {
  const inside = (text, name) => (classes[name] ? rangesOf(classes[name], "x") : text);
  const alone = (text, name) => (classes[name] ? `[${inside(text, name)}]` : text);
  return pattern.replace(SET, (set) => set.replace(PROPERTY, inside)).replace(PROPERTY, alone);
}

/**
 * A pre-tokenizer of tokenizer.json that splits by the server's letters and numbers. The browser's edition of Unicode
 * may have others.
 */
function splitting(step, classes) {
  if (step?.type === "Sequence") {
    const steps = step.pretokenizers.map((part) => splitting(part, classes));
    return { ...step, pretokenizers: steps };
  }
  if (step?.type === "Split" && step.pattern.Regex) {
    return { ...step, pattern: { Regex: spelled(step.pattern.Regex, classes) } };
  }
  const isPlain = step?.type === "ByteLevel" && step.use_regex !== false && !step.add_prefix_space;
  if (!isPlain) return step; // add_prefix_space adds a space before the text, not before its parts
  const words = { type: "Split", pattern: { Regex: spelled(GPT2, classes) }, behavior: "Isolated", invert: false };
  return { type: "Sequence", pretokenizers: [words, { ...step, use_regex: false }] };
}

/** The words of a list. Throws a RangeError for a list that `Encoder.with_blanks` refuses. */
function wordsOf(list) {
  const words = list.split("|").map(stripped);
  const different = new Set(words);
  if (different.size === words.length && words.length > 1 && words.length <= MOST_WORDS && !different.has(""))
    return words;
  const how = `2 to ${MOST_WORDS} different words, as in __{red|blue}`;
  throw new RangeError(`prompt has a blank whose list must hold ${how}, not '${list}'`);
}

/** The tokenizer of a model. */
export class TextTokenizer {
  #writes;
  #reads;
  #alphabet = byteAlphabet();
  #added;
  #front; // the special tokens before a text
  #blank;

  /**
   * json, config: the contents of a model's tokenizer.json and tokenizer_config.json.
   * classes: {L, N}, the server's letters and numbers as ranges, see surelock/browser_parts.py.
   */
  constructor(json, config, classes) {
    const adapted = { ...json, pre_tokenizer: splitting(json.pre_tokenizer, classes) };
    this.#added = json.added_tokens ?? [];
    this.#writes = new Tokenizer(adapted, config);
    // Reads the spelling of a special token as text.
    this.#reads = new Tokenizer({ ...adapted, added_tokens: [] }, config);
    const whole = this.#reads.encode(LETTER).ids;
    const [first] = this.#read(LETTER);
    this.#front = whole.slice(0, Math.max(0, whole.indexOf(first)));
    this.#blank = blankBetween(rangesOf(classes.L, "u") + rangesOf(classes.N, "u"));
  }

  /**
   * The token ids of a text. If `mask` is an id, blanks become mask tokens of this id, as in `LanguageModel.encode`.
   * Throws a RangeError for a text with half of a character (a lone surrogate).
   */
  encode(text, mask = null) {
    if (mask !== null) return this.prompt(text, mask).ids;
    if (LONE_HALF.test(text)) throw new RangeError("prompt holds half of a character: write it anew.");
    return [...this.#front, ...this.#read(text)];
  }

  /**
   * {ids, lists} of a text with blanks, as in `Encoder.with_blanks`. Blanks are mask tokens with the id `mask`.
   * lists: the word lists of blanks, see word_lists.js.
   * Throws a RangeError for half of a character, and for a list that no blank can have.
   */
  prompt(text, mask) {
    if (LONE_HALF.test(text)) throw new RangeError("prompt holds half of a character: write it anew.");
    const maskText = this.#added.find(({ id }) => id === mask)?.content.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
    const blank = `(?<blank>${this.#blank})${LIST}`;
    const either = maskText ? `${blank}|${maskText}` : blank;
    const pattern = new RegExp(`(?<space> ?)(?:${either})`, "gu");
    const ids = [...this.#front];
    const lists = [];
    let at = 0;
    for (const { 0: whole, index, groups } of text.matchAll(pattern)) {
      const { blank: line, list, space } = groups;
      const goesOn = index > 0;
      const piece = text.slice(at, index);
      ids.push(...(at ? this.#continued(piece) : this.#read(piece)));
      at = index + whole.length;
      if (line && list === undefined && text[at] === "{") throw new RangeError(UNCLOSED);
      const words = list === undefined ? [] : wordsOf(list).map((word) => this.#word(space + word, goesOn));
      if (words.length) lists.push({ at: ids.length, words });
      const sizes = words.length ? words.map(({ length }) => length) : [line?.length ?? 1];
      ids.push(...new Array(Math.max(...sizes)).fill(mask));
    }
    ids.push(...(at ? this.#continued(text.slice(at)) : this.#read(text.slice(at))));
    return { ids, lists };
  }

  #word(text, goesOn) {
    const ids = goesOn ? this.#continued(text) : this.#read(text);
    if (ids.length) return ids;
    throw new RangeError(`prompt has a blank whose list holds '${text.trim()}', which is no text of this model`);
  }

  /**
   * The id of the token that is a whole text; undefined if there is no such token or if it is the mask token.
   * A token of the text after a space is preferred. It mirrors `one_token` of surelock/ui/request.py.
   */
  single(text, mask) {
    const forms = [text, ` ${text}`].filter((form) => !UNPRINTED.test(form));
    const single = forms.map((form) => this.encode(form)).filter((ids) => ids.length === 1 && ids[0] !== mask);
    return single.at(-1)?.[0];
  }

  #read(text) {
    return this.#reads.encode(text, { add_special_tokens: false }).ids;
  }

  #says(ids) {
    return ids.length ? this.#writes.decode(ids, EXACT) : "";
  }

  /**
   * The ids of a text that continues another text, without the space that some tokenizers put before a text.
   * The text is encoded after one of BEGINNINGS that does not merge with the text.
   */
  #continued(text) {
    const alone = this.#read(text);
    for (const beginning of BEGINNINGS) {
      const first = this.#read(beginning);
      const whole = this.#read(beginning + text);
      if (!first.length || first.some((id, i) => id !== whole[i])) continue;
      const isSame = this.#says([...first, ...alone]) === this.#says(whole);
      return isSame ? alone : whole.slice(first.length);
    }
    return alone;
  }

  /** The pieces of tokens by id. A piece is a text, or an array of bytes if they are no text by themselves. */
  pieces(ids) {
    return Object.fromEntries(ids.map((id) => [id, this.#piece(id)]));
  }

  #piece(id) {
    const name = this.#writes.id_to_token(id);
    if (name === undefined) return `#${id}`; // beyond the vocabulary: padded embeddings have such rows
    const byte = FALLBACK_BYTE.exec(name);
    if (byte) return [Number.parseInt(byte[1], 16)];
    const text = this.#says([id, id]).slice(this.#says([id]).length); // the text of a token after another token
    const bytes = Array.from(name, (char) => this.#alphabet.get(char));
    return text.includes("\ufffd") && !bytes.includes(undefined) ? bytes : text;
  }
}
