// The texts of tokens. The piece of a token is a text, or an array of bytes if it is no valid text by itself.
// Neighbouring pieces of bytes that form a character together are shown as this character.

const VISIBLE = { "\n": "⏎", "\t": "⇥", "\r": "␍", " ": "␣", "\u00a0": "⍽" };
const strict = new TextDecoder("utf-8", { fatal: true });
const lenient = new TextDecoder("utf-8", { ignoreBOM: true });

const hex = (n, width) => n.toString(16).toUpperCase().padStart(width, "0");
export const END = "■"; // the label of a token that ends the text
const HIDDEN = /[\p{Cc}\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb]/u;

/** A text in which control characters, direction characters and (if there is nothing else) white space are visible. */
export function visible(text, { trim = false } = {}) {
  let inner = text;
  if (trim && inner.length > 1 && inner.startsWith(" ") && inner.trim() !== "") inner = inner.slice(1);
  const bare = inner.trim() === "";
  let out = "";
  for (const char of inner) {
    const code = char.codePointAt(0);
    if (char === "\n" || char === "\t" || char === "\r" || (bare && VISIBLE[char])) out += VISIBLE[char];
    else if (code < 32) out += String.fromCodePoint(0x2400 + code);
    else if (HIDDEN.test(char)) out += `‹${hex(code, 4)}›`;
    else out += char;
  }
  return out === "" ? "∅" : out;
}

const LEAST_BYTES = 10; // the fewest bytes of a text by which a tokenizer is judged
const FEWEST = 2; // the fewest bytes per token in a text that fits a tokenizer
const MOST_A_WORD = 1.7; // the most tokens per word in a text whose words the model knows

/** The pieces of a trace's tokens. */
export class Pieces {
  /** ends: the tokens that end a text. */
  constructor(ends = new Set()) {
    Object.assign(this, { map: new Map(), ends });
  }

  add(pieces) {
    for (const [id, piece] of Object.entries(pieces ?? {})) this.map.set(Number(id), piece);
  }

  /** A token as the inspector shows it: its text, its bytes, or its number. */
  name(id) {
    if (this.ends.has(id)) return `${END} end of the text`;
    const piece = this.map.get(id);
    if (piece === undefined) return `#${id}`;
    return typeof piece === "string" ? visible(piece) : piece.map((b) => hex(b, 2)).join(" ");
  }

  /** Whether these tokens have little more than a byte on average: the tokenizer was made for another kind of text. */
  isForeign(tokens) {
    const encoder = new TextEncoder();
    const bytesOf = (piece = "") => (typeof piece === "string" ? encoder.encode(piece) : piece).length;
    const bytes = tokens.reduce((sum, id) => sum + bytesOf(this.map.get(id)), 0);
    return bytes >= LEAST_BYTES && bytes < FEWEST * tokens.length;
  }

  /**
   * Whether the words of these tokens have many tokens on average: the model knows few of the words.
   * Names, which begin with a capital, are left out.
   */
  isRare(tokens) {
    let words = 0;
    let all = 0;
    let word = "";
    let size = 0;
    const close = () => {
      const text = word.trim();
      if (!/^[\p{Ll}\p{Lo}]/u.test(text)) return;
      words++;
      all += size;
    };
    for (const id of tokens) {
      const piece = this.map.get(id) ?? "";
      const text = typeof piece === "string" ? piece : "";
      const begins = /^\s/.test(text) || /^[^\p{L}]+$/u.test(text);
      if (begins) close();
      [word, size] = begins ? [text, 1] : [word + text, size + 1];
    }
    close();
    return words > 0 && all > MOST_A_WORD * words;
  }

  /** The labels of all positions. The label of a masked position (token below 0) is "". */
  labels(tokens) {
    const labels = new Array(tokens.length).fill("");
    for (let i = 0; i < tokens.length; i++) {
      const id = tokens[i];
      if (id < 0) continue;
      const piece = this.map.get(id);
      if (this.ends.has(id)) labels[i] = END;
      else if (piece === undefined) labels[i] = `#${id}`;
      else if (typeof piece === "string") labels[i] = visible(piece, { trim: true });
      else i += this.#bytes(tokens, i, labels) - 1;
    }
    return labels;
  }

  /** Labels the byte pieces from position i on that form a character together. Returns their number. */
  #bytes(tokens, i, labels) {
    const bytes = [];
    for (let j = i; j < i + 4; j++) {
      const piece = this.map.get(tokens[j]);
      if (!Array.isArray(piece)) break;
      bytes.push(...piece);
      try {
        labels[i] = visible(strict.decode(Uint8Array.from(bytes)));
        labels.fill("‥", i + 1, j + 1);
        return j - i + 1;
      } catch {
        /* the character is not complete: add one more piece */
      }
    }
    labels[i] = this.name(tokens[i]);
    return 1;
  }

  /** The text of tokens. Consecutive masked positions are shown as one `gap`. */
  text(tokens, gap = "▁") {
    let text = "";
    let bytes = []; // the bytes of the pieces since the last piece that is text
    let masks = 0;
    const add = (whole) => {
      if (bytes.length) text += lenient.decode(Uint8Array.from(bytes));
      bytes = [];
      text += whole;
    };
    for (const id of tokens) {
      if (id < 0) {
        if (masks++ < 1) add(gap);
        continue;
      }
      masks = 0;
      const piece = this.map.get(id) ?? `#${id}`;
      if (typeof piece === "string") add(piece);
      else bytes.push(...piece);
    }
    add("");
    return text;
  }
}
