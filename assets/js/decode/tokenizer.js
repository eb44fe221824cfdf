// Text to token ids and back, by Hugging Face's own tokenizer in JavaScript, as `LanguageModel.encode` does.

import { Tokenizer } from "@huggingface/tokenizers";
import { BLANK } from "../trace/blanks.js";

const FALLBACK_BYTE = /^<0x([0-9A-Fa-f]{2})>$/;
const LONE_HALF = /\p{Surrogate}/u;
const LETTER = "a";
const BEGINNINGS = [LETTER, ".", "0", "x", "-", ")", "q", "7"]; // of texts; one of them merges with no text that follows it
const EXACT = { skip_special_tokens: false, clean_up_tokenization_spaces: false };

/** The characters by which byte-level BPE vocabularies (GPT-2's and its heirs') stand for bytes. */
function byteAlphabet() {
  const isPlain = (b) => (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b !== 0xad);
  const bytes = Array.from({ length: 256 }, (_, b) => b);
  const others = bytes.filter((b) => !isPlain(b));
  const plain = bytes.filter(isPlain).map((b) => [String.fromCharCode(b), b]);
  return new Map([...plain, ...others.map((b, n) => [String.fromCharCode(256 + n), b])]);
}

export class TextTokenizer {
  #writes;
  #reads;
  #alphabet = byteAlphabet();
  #added;
  #front; // the special tokens before a text

  /** What a model's tokenizer.json and tokenizer_config.json hold. */
  constructor(json, config) {
    this.#added = json.added_tokens ?? [];
    this.#writes = new Tokenizer(json, config);
    this.#reads = new Tokenizer({ ...json, added_tokens: [] }, config); // text that spells a special token is text
    const whole = this.#reads.encode(LETTER).ids;
    const [first] = this.#read(LETTER);
    this.#front = whole.slice(0, Math.max(0, whole.indexOf(first)));
  }

  /** Token ids of a text; its blanks are masks of the id `mask`, if that is given, as `LanguageModel.encode` says. Throws
   * a RangeError for half of a character. */
  encode(text, mask = null) {
    if (LONE_HALF.test(text)) throw new RangeError("prompt holds half of a character: write it anew.");
    if (mask === null) return [...this.#front, ...this.#read(text)];
    const own = this.#added.find(({ id }) => id === mask)?.content.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
    const pieces = text.split(new RegExp(` ?(${own ? `${BLANK}|${own}` : BLANK})`, "u"));
    const masks = (blank) => Array.from(/^_+$/.test(blank) ? blank : " ", () => mask);
    const idsOf = (piece, i) => (i ? this.#continued(piece) : [...this.#front, ...this.#read(piece)]);
    return pieces.flatMap((piece, i) => (i % 2 ? masks(piece) : idsOf(piece, i)));
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
