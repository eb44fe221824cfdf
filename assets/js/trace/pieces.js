// How tokens read: a piece is text, or an array of bytes where it is no valid text alone.
// Neighbouring byte pieces that form a character together show as that character.

const VISIBLE = { "\n": "⏎", "\t": "⇥", "\r": "␍", " ": "␣", "\u00a0": "⍽" };
const strict = new TextDecoder("utf-8", { fatal: true });
const lenient = new TextDecoder("utf-8", { ignoreBOM: true });

const hex = (n, width) => n.toString(16).toUpperCase().padStart(width, "0");
export const END = "■"; // stands for the end of the text
const HIDDEN = /[\p{Cc}\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb]/u;

/** Text with white space at the ends, control and direction characters made visible. */
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

const LEAST_BYTES = 10; // of a text that a tokenizer can be measured by
const FEWEST = 2; // bytes to a token, of a text that a tokenizer was made for
const MOST_A_WORD = 1.7; // tokens, of words that a model knows

export class Pieces {
  /** ends: the tokens that end a text. */
  constructor(ends = new Set()) {
    Object.assign(this, { map: new Map(), ends });
  }

  add(pieces) {
    for (const [id, piece] of Object.entries(pieces ?? {})) this.map.set(Number(id), piece);
  }

  /** The token as a reader sees it in the inspector: quoted text, bytes or its number. */
  name(id) {
    if (this.ends.has(id)) return `${END} end of the text`;
    const piece = this.map.get(id);
    if (piece === undefined) return `#${id}`;
    return typeof piece === "string" ? visible(piece) : piece.map((b) => hex(b, 2)).join(" ");
  }

  /** Whether these tokens have little more than a byte each: the tokenizer was made for another kind of text. */
  isForeign(tokens) {
    const encoder = new TextEncoder();
    const bytesOf = (piece = "") => (typeof piece === "string" ? encoder.encode(piece) : piece).length;
    const bytes = tokens.reduce((sum, id) => sum + bytesOf(this.map.get(id)), 0);
    return bytes >= LEAST_BYTES && bytes < FEWEST * tokens.length;
  }

  /**
   * Whether a word of these tokens' text is many tokens on average, so that the model knows few of the words.
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

  /** Labels of all positions: tokens[i] < 0 is masked and gives "". */
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

  /** Labels byte pieces from i on, together where they form a character. Gives how many it took. */
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
        /* not yet whole: take one more piece */
      }
    }
    labels[i] = this.name(tokens[i]);
    return 1;
  }

  /** Running text of the tokens; masked positions show as `gap`. */
  text(tokens, gap = "▁") {
    let text = "";
    let bytes = []; // of the pieces since the last that is text
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
