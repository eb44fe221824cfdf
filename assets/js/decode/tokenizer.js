// Text to token ids and back, by Hugging Face's tokenizer in JavaScript, as `LanguageModel.encode` does.

import { Tokenizer } from "@huggingface/tokenizers";
import { blankBetween, LIST, stripped } from "../trace/blanks.js";

const FALLBACK_BYTE = /^<0x([0-9A-Fa-f]{2})>$/;
const LONE_HALF = /\p{Surrogate}/u;
const LETTER = "a";
const MOST_WORDS = 64; // of a list
const UNCLOSED = "prompt has a blank whose list must end with a brace, as in __{red|blue}";
const BEGINNINGS = [LETTER, ".", "0", "x", "-", ")", "q", "7"]; // of texts; one of them merges with no text that follows it
const EXACT = { skip_special_tokens: false, clean_up_tokenization_spaces: false };
const SET = /\[(?:\\.|[^\]\\])*\]/g; // in the source of a pattern
const PROPERTY = /\\p\{(\w+)\}/g;
const UNPRINTED = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u; // as of Python's `str.isprintable`
/** How byte-level tokenizers split a text where their file names no pattern, GPT-2's. */
const GPT2 = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`;

/** The characters by which byte-level BPE vocabularies (GPT-2's and its heirs') stand for bytes. */
function byteAlphabet() {
  const isPlain = (b) => (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b !== 0xad);
  const bytes = Array.from({ length: 256 }, (_, b) => b);
  const others = bytes.filter((b) => !isPlain(b));
  const plain = bytes.filter(isPlain).map((b) => [String.fromCharCode(b), b]);
  return new Map([...plain, ...others.map((b, n) => [String.fromCharCode(256 + n), b])]);
}

/** What stands in a set of characters for ranges, a list of first, last, first, last, ... in the notation \x{…} or \u{…}. */
function rangesOf(ranges, notation) {
  const ends = ranges.map((code) => `\\${notation}{${code.toString(16)}}`);
  return ends.map((end, i) => (i % 2 ? `-${end}` : end)).join("");
}

/** The source of a pattern with ranges in place of the properties that `classes` has. */
function spelled(pattern, classes) {
  const inside = (text, name) => (classes[name] ? rangesOf(classes[name], "x") : text);
  const alone = (text, name) => (classes[name] ? `[${inside(text, name)}]` : text);
  return pattern.replace(SET, (set) => set.replace(PROPERTY, inside)).replace(PROPERTY, alone);
}

/** A step of tokenizer.json that splits by the server's letters and numbers: a browser knows another edition of Unicode. */
function splitting(step, classes) {
  if (step?.type === "Sequence") {
    const steps = step.pretokenizers.map((part) => splitting(part, classes));
    return { ...step, pretokenizers: steps };
  }
  if (step?.type === "Split" && step.pattern.Regex) {
    return { ...step, pattern: { Regex: spelled(step.pattern.Regex, classes) } };
  }
  const isPlain = step?.type === "ByteLevel" && step.use_regex !== false && !step.add_prefix_space;
  if (!isPlain) return step; // a space before a text stands before the text alone, not before its parts
  const words = { type: "Split", pattern: { Regex: spelled(GPT2, classes) }, behavior: "Isolated", invert: false };
  return { type: "Sequence", pretokenizers: [words, { ...step, use_regex: false }] };
}

/** The words of a list. Throws a RangeError, as `Encoder.with_blanks` refuses it. */
function wordsOf(list) {
  const words = list.split("|").map(stripped);
  const different = new Set(words);
  if (different.size === words.length && words.length > 1 && words.length <= MOST_WORDS && !different.has(""))
    return words;
  const how = `2 to ${MOST_WORDS} different words, as in __{red|blue}`;
  throw new RangeError(`prompt has a blank whose list must hold ${how}, not '${list}'`);
}

export class TextTokenizer {
  #writes;
  #reads;
  #alphabet = byteAlphabet();
  #added;
  #front; // the special tokens before a text
  #blank;

  /** json, config: what a model's tokenizer.json and tokenizer_config.json hold. classes: the server's letters and numbers,
   * {L, N}, see surelock/browser_parts.py. */
  constructor(json, config, classes) {
    const adapted = { ...json, pre_tokenizer: splitting(json.pre_tokenizer, classes) };
    this.#added = json.added_tokens ?? [];
    this.#writes = new Tokenizer(adapted, config);
    this.#reads = new Tokenizer({ ...adapted, added_tokens: [] }, config); // text that spells a special token is text
    const whole = this.#reads.encode(LETTER).ids;
    const [first] = this.#read(LETTER);
    this.#front = whole.slice(0, Math.max(0, whole.indexOf(first)));
    this.#blank = blankBetween(rangesOf(classes.L, "u") + rangesOf(classes.N, "u"));
  }

  /**
   * Token ids of a text. With `mask`, its blanks are masks of that id, as `LanguageModel.encode` says.
   * Throws a RangeError for half of a character.
   */
  encode(text, mask = null) {
    if (mask !== null) return this.prompt(text, mask).ids;
    if (LONE_HALF.test(text)) throw new RangeError("prompt holds half of a character: write it anew.");
    return [...this.#front, ...this.#read(text)];
  }

  /** {ids, lists} of a text with blanks, masks of the id `mask`, as `Encoder.with_blanks` says. lists: of blanks from
   * lists, see word_lists.js. Throws a RangeError for half of a character, and for a list that no blank can have. */
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
   * The id of the one token that a text is, undefined where it is none or the id `mask`.
   * A space stands before the text where that is how a word begins. It mirrors `one_token` of surelock/ui/request.py.
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

  /** The ids of a text that goes on from another one: without the space that some tokenizers put before a text. Those of
   * the text alone, if they read the same there. */
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

  /** The pieces of token ids, by id: a text, or its bytes where they are no text alone. */
  pieces(ids) {
    return Object.fromEntries(ids.map((id) => [id, this.#piece(id)]));
  }

  #piece(id) {
    const name = this.#writes.id_to_token(id);
    if (name === undefined) return `#${id}`; // beyond the vocabulary: padded embeddings have such rows
    const byte = FALLBACK_BYTE.exec(name);
    if (byte) return [Number.parseInt(byte[1], 16)];
    const text = this.#says([id, id]).slice(this.#says([id]).length); // as it stands behind another token
    const bytes = Array.from(name, (char) => this.#alphabet.get(char));
    return text.includes("\ufffd") && !bytes.includes(undefined) ? bytes : text;
  }
}
