// What a decoder in the browser is made of, fetched when the first run is asked for: a model's description of itself
// (its shape, its graphs, and what its files must be), its weights, its tokenizer, and ONNX Runtime's own code, packed.

import { sha256 } from "@noble/hashes/sha2.js"; // crypto.subtle is there in secure contexts alone
import { OnnxEngine } from "./engine.js";
import { unpacked } from "./packed.js";
import { allowed, STORE } from "./store.js";
import { TextTokenizer } from "./tokenizer.js";

const FAILED = "The decoder could not be fetched: ";

const bytesOf = (text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
const textOf = (bytes) => new TextDecoder().decode(bytes);
const hexOf = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** The bytes of a packed file. Throws a RangeError, a sentence. */
const within = (name, blob) =>
  unpacked(blob).catch(() => {
    throw new RangeError(`The decoder cannot be unpacked: this page is damaged at ${name}.`);
  });

/** An answer's bytes. hear(bytes) is told of each part that comes. Throws a RangeError, a sentence. */
async function fetched(name, url, cache = "default", hear = () => {}) {
  if (url instanceof Blob) return within(name, url);
  const failed = (how) => new RangeError(`${FAILED}${name} ${how}.`);
  const answer = await fetch(url, { cache }).catch(() => null);
  if (!answer?.ok) throw failed("did not come");
  const parts = [];
  const reader = answer.body.getReader();
  for (;;) {
    const { done, value } = await reader.read().catch(() => {
      throw failed("came in part");
    });
    if (done) return new Uint8Array(await new Blob(parts).arrayBuffer());
    parts.push(value);
    hear(value.length);
  }
}

/** The files of a decoder, each by an address that names what must be in it; what was found right is kept. */
class Files {
  #store;
  #come;
  #named = new Set();

  /** store: the browser's, null where it has none. come(bytes) is told of each part that comes. */
  constructor(store, come) {
    [this.#store, this.#come, this.keeps] = [store, come, store !== null];
  }

  /** Throws a RangeError, a sentence, for what is not what it must be. */
  async get(name, url, told) {
    if (url instanceof Blob) {
      this.keeps = true; // in the page itself
      return within(name, url);
    }
    const address = new URL(url);
    if (address.protocol.startsWith("http")) address.searchParams.set("sha256", told.sha256);
    this.#named.add(address.href);
    const kept = await allowed(() => this.#store?.match(address));
    if (kept) {
      this.#come(told.bytes);
      return new Uint8Array(await kept.arrayBuffer());
    }
    // The browser may have kept a damaged one by itself.
    for (const cache of ["default", "reload"]) {
      const bytes = await fetched(name, address, cache, this.#come);
      if (hexOf(sha256(bytes)) === told.sha256) return this.#keep(address, bytes);
    }
    throw new RangeError(`${FAILED}${name} is not what the page was made with.`);
  }

  async #keep(address, bytes) {
    this.keeps &&= await allowed(() => this.#store.put(address, new Response(bytes)).then(() => true));
    return bytes;
  }

  /** Drops what the browser keeps of another edition's. */
  async tidy() {
    const all = (await allowed(() => this.#store?.keys())) ?? [];
    for (const { url } of all) if (!this.#named.has(url)) await allowed(() => this.#store.delete(url));
  }
}

/** {engine, tokenizer, shape, note} of a model. ort: ONNX Runtime Web. model: the folder of the model's files; runtime:
 * where the packed code lies; both URLs, or packed files by their names and a packed file. hear(got, all) is told of bytes. note: a sentence, where the browser keeps
 * nothing, or "". Throws a RangeError, one sentence, for what does not come whole. */
export async function assemble(ort, { model, runtime }, hear) {
  const at = (name) => (typeof model === "string" ? new URL(name, model) : model[name]);
  const { shape, graphs, weights, ...told } = JSON.parse(textOf(await fetched("browser.json", at("browser.json"))));
  const all = [told.runtime, ...Object.values(told.files)].reduce((sum, { bytes }) => sum + bytes, 0);
  let got = 0;
  const store = await allowed(() => globalThis.caches?.open(STORE) ?? null);
  const files = new Files(store, (more) => {
    got = Math.min(got + more, all);
    hear(got, all);
  });
  const names = Object.keys(told.files);
  const [packed, ...own] = await Promise.all([
    files.get("ort.wasm.gz", runtime, told.runtime),
    ...names.map((name) => files.get(name, at(name), told.files[name])),
  ]);
  await files.tidy();
  const named = Object.fromEntries(names.map((name, i) => [name, own[i]]));
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  ort.env.wasm.wasmBinary = new Uint8Array(await new Response(unpacked).arrayBuffer());
  ort.env.wasm.numThreads = 1;
  const made = Object.fromEntries(Object.entries(graphs).map(([name, text]) => [name, bytesOf(text)]));
  const held = Object.fromEntries(weights.map((name) => [name, named[name]]));
  const engine = await OnnxEngine.load(ort, { config: shape.network, graphs: made, files: held });
  ort.env.wasm.wasmBinary = undefined; // it runs: 14 MB less
  const [tokens, config] = ["tokenizer.json", "tokenizer_config.json"].map((name) => JSON.parse(textOf(named[name])));
  const note =
    globalThis.isSecureContext && !files.keeps
      ? "This browser keeps no files of this page: the next visit fetches the decoder again."
      : "";
  return { engine, tokenizer: new TextTokenizer(tokens, config), shape, note };
}
