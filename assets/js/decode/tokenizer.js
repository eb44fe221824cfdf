// Text to token ids and back, by Hugging Face's own tokenizer in JavaScript, as `LanguageModel.encode` does.

import { Tokenizer } from "@huggingface/tokenizers";
import { BLANK } from "../trace/blanks.js";

const FALLBACK_BYTE = /^<0x([0-9A-Fa-f]{2})>$/;
const LONE_HALF = /\p{Surrogate}/u;

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

  /** What a model's tokenizer.json and tokenizer_config.json hold. */
  constructor(json, config) {
    this.#added = json.added_tokens ?? [];
    this.#writes = new Tokenizer(json, config);
    this.#reads = new Tokenizer({ ...json, added_tokens: [] }, config); // text that spells a special token is text
  }

  /** Token ids of a text; its blanks are masks of the id `mask`, if that is given, as `LanguageModel.encode` says. Throws
   * a RangeError for half of a character. */
  encode(text, mask = null) {
    if (LONE_HALF.test(text)) throw new RangeError("prompt holds half of a character: write it anew.");
    if (mask === null) return this.#reads.encode(text).ids;
    const own = this.#added.find(({ id }) => id === mask)?.content.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
    const pieces = text.split(new RegExp(` ?(${own ? `${BLANK}|${own}` : BLANK})`, "u"));
    const masks = (blank) => Array.from(/^_+$/.test(blank) ? blank : " ", () => mask);
    const idsOf = (piece, i) => this.#reads.encode(piece, { add_special_tokens: i === 0 }).ids;
    return pieces.flatMap((piece, i) => (i % 2 ? masks(piece) : idsOf(piece, i)));
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
    if (name.includes("\u2581")) return name.replaceAll("\u2581", " "); // decoding would drop the leading space
    const text = this.#writes.decode([id], { skip_special_tokens: false, clean_up_tokenization_spaces: false });
    const bytes = Array.from(name, (char) => this.#alphabet.get(char));
    return text.includes("\ufffd") && !bytes.includes(undefined) ? bytes : text;
  }
}
