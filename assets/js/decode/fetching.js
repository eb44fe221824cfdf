// Fetches the parts of a decoder in the browser when the first run is requested: the model's description (its shape,
// its graphs, and the hashes of its files), its weights, its tokenizer, and ONNX Runtime's code, packed.

import { sha256 } from "@noble/hashes/sha2.js"; // crypto.subtle exists only in secure contexts
import { release } from "./arrays.js";
import { digitsOfWeights } from "./digits.js";
import { OnnxEngine } from "./engine.js";
import { bytesOf, gathered, gunzipped, unpacked } from "./packed.js";
import { allowed, STORE } from "./store.js";
import { TextTokenizer } from "./tokenizer.js";

const FAILED = "The decoder could not be fetched: ";
const KEEPS_NONE = "This browser keeps no files of this page: the next visit fetches the decoder again.";
const PLAIN_HTTP = "Over plain http a browser keeps no files of a page: the next visit may fetch the decoder again.";

const textOf = (bytes) => new TextDecoder().decode(bytes);
const hexOf = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** A promise of the bytes of a packed file. Throws a RangeError, a sentence, for a damaged file. */
const within = (name, { packed }) =>
  unpacked(packed).catch(() => {
    throw new RangeError(`The decoder cannot be unpacked: this page is damaged at ${name}.`);
  });

/**
 * A promise of the bytes of a file. hear(bytes): called with the size of every part. Throws a RangeError, a sentence.
 */
async function fetched(name, url, cache = "default", hear = () => {}) {
  if (url.packed) return within(name, url);
  const failed = (how) => new RangeError(`${FAILED}${name} ${how}.`);
  const answer = await fetch(url, { cache }).catch(() => null);
  if (!answer?.ok) throw failed("did not come");
  return gathered(answer.body, hear).catch(() => {
    throw failed("came in part");
  });
}

/** The address of a file. It contains the hash of the file, so that browsers keep only the right edition. */
function addressOf(url, { sha256: hash }) {
  const address = new URL(url);
  if (address.protocol.startsWith("http")) address.searchParams.set("sha256", hash);
  return address;
}

/**
 * The files of a decoder, by addresses with their hashes. Files with the right hash are kept in the browser's store.
 */
class Files {
  #store;
  #come;
  #kept = [];

  /** store: the browser's store, null if it has none. come(bytes): called with the size of every part that arrives. */
  constructor(store, come) {
    [this.#store, this.#come] = [store, come];
  }

  /** A promise of the bytes of a file. Throws a RangeError, a sentence, for a file with another hash than listed. */
  async get(name, url, listed) {
    if (url.packed) return within(name, url);
    const address = addressOf(url, listed);
    const kept = await allowed(() => this.#store?.match(address));
    if (kept) {
      this.#come(listed.bytes);
      return gathered(kept.body);
    }
    // The browser's cache may have a damaged file: then the file is fetched again.
    for (const cache of ["default", "reload"]) {
      const bytes = await fetched(name, address, cache, this.#come);
      if (hexOf(sha256(bytes)) === listed.sha256) {
        this.#kept.push(allowed(() => this.#store?.put(address, new Response(bytes)).then(() => true)));
        return bytes;
      }
    }
    throw new RangeError(`${FAILED}${name} is not what the page was made with.`);
  }

  /** A promise of whether all files were kept for the next visit. */
  async keeps() {
    return (await Promise.all(this.#kept)).every(Boolean);
  }

  /** Deletes kept files of other editions: all files except `files`. files: [name, url, listed], see `get`. */
  async tidy(files) {
    const named = new Set(files.map(([, url, listed]) => !url.packed && addressOf(url, listed).href));
    const all = (await allowed(() => this.#store?.keys())) ?? [];
    for (const { url } of all) if (!named.has(url)) await allowed(() => this.#store.delete(url));
  }
}

/**
 * The places of the parts of a decoder: URLs, or {packed: the text of a packed file}.
 * @typedef {object} DecoderPlaces
 * @property {string | object} model the folder of the model's files, or packed files by their names
 * @property {string | object} runtime ONNX Runtime's packed code
 * @property {string | object} interpreter QuickJS's packed code
 */

/**
 * The parts of a decoder.
 * @typedef {object} Assembled
 * @property {OnnxEngine} engine
 * @property {TextTokenizer} tokenizer
 * @property {object} shape
 * @property {string} note a sentence if the browser could not keep the files, else ""
 * @property {string} digits the digits of the weights, see digits.js
 * @property {() => Promise<Uint8Array>} interpreter fetches QuickJS's code
 */

/**
 * Fetches a decoder. Throws a RangeError, one sentence, if a part is missing or damaged.
 * @param {object} ort ONNX Runtime Web
 * @param {DecoderPlaces} places
 * @param {(got: number, all: number) => void} hear is called with the bytes that have arrived, and the bytes of all
 *   parts
 * @returns {Promise<Assembled>}
 */
export async function assemble(ort, { model, runtime, interpreter }, hear) {
  const at = (name) => (typeof model === "string" ? new URL(name, model) : model[name]);
  const described = JSON.parse(textOf(await fetched("browser.json", at("browser.json"))));
  const { shape, graphs, weights, classes, ...listed } = described;
  const packed = ["ort.wasm.gz", runtime, listed.runtime];
  const typed = ["quickjs.wasm.gz", interpreter, listed.interpreter];
  const parts = Object.entries(listed.files).map(([name, listing]) => [name, at(name), listing]);
  const all = [packed, ...parts].reduce((sum, [, , { bytes }]) => sum + bytes, 0);
  let got = 0;
  const store = await allowed(() => globalThis.caches?.open(STORE) ?? null);
  const files = new Files(store, (more) => {
    got = Math.min(got + more, all);
    hear(got, all);
  });
  const come = Promise.all(parts.map(async (file) => [file[0], await files.get(...file)])).then(Object.fromEntries);
  const weightsCome = () => come.then((content) => Object.fromEntries(weights.map((name) => [name, content[name]])));
  const loading = files.get(...packed).then(async (code) => {
    const runtimeCode = await gunzipped(code);
    ort.env.wasm.wasmBinary = runtimeCode;
    ort.env.wasm.numThreads = 1;
    const graphBytes = Object.fromEntries(Object.entries(graphs).map(([name, text]) => [name, bytesOf(text)]));
    const engine = await OnnxEngine.load(ort, { config: shape.network, graphs: graphBytes, files: weightsCome });
    ort.env.wasm.wasmBinary = undefined;
    release(runtimeCode); // the compiled code does not need it
    return engine;
  });
  const [engine, content] = await Promise.all([loading, come]);
  const digits = digitsOfWeights(await weightsCome());
  for (const name of weights) release(content[name]); // the sessions hold copies
  await files.tidy([packed, typed, ...parts]);
  const [tokens, config] = ["tokenizer.json", "tokenizer_config.json"].map((name) => JSON.parse(textOf(content[name])));
  const lost = globalThis.isSecureContext ? KEEPS_NONE : PLAIN_HTTP;
  const note = (await files.keeps()) ? "" : lost;
  const tokenizer = new TextTokenizer(tokens, config, classes);
  return { engine, tokenizer, shape, note, digits, interpreter: async () => gunzipped(await files.get(...typed)) };
}
