// The source of runs that this browser computes, in a worker. It has the methods and messages of ServerSource
// (server_source.js), and two more messages: {loading: {got, all}} in bytes while the decoder is fetched, and {note}, a
// sentence.

import "../loaded_first.js";
import { codesOf } from "../trace/typed.js";
import { overlong, wholeRequest } from "./asked.js";
import { decoderInside, partsOf, workerAddress } from "./decoder_files.js";
import { page } from "./state.js";
import { mayRun } from "./trust.js";

const GONE = "This browser cannot decode: ";
const MOST_MS = 3000;
const ENDLESS = "The rule was stopped: it did not come back within 3 s.";

const MACHINE = "a browser"; // the name of this computer in a trace

/** A promise of the source that decodes a model in this browser. */
export const decoderOf = async (model) => new BrowserSource(await workerAddress(), () => partsOf(model));

/** The name of an interface that a decoder needs and the browser lacks, else undefined. */
const lacking = () => ["Worker", "WebAssembly", "DecompressionStream"].find((name) => !(name in globalThis));

class BrowserSource {
  #worker = null;
  #runs = new Map();
  #calls = new Map();
  #count = 0;

  /**
   * worker: the address of the worker's script. where(): a promise of DecoderPlaces, see `assemble`.
   * Nothing is fetched before the first run.
   */
  constructor(worker, where) {
    Object.assign(this, { url: worker, where });
  }

  /** Loads the decoder before a run is requested. */
  async prepare() {
    if (lacking()) return;
    this.#worker ??= this.#newWorker();
    await this.#ask("prepare");
    page.set({ decoder: this.#worker !== null });
  }

  /**
   * Requests a run. hear(messages): called with messages of the run, and with {loading}, {note}, {refused} or {lost}.
   * request: see `wholeRequest`. The request of a branch is {model, prompt, prompt_tokens, lanes}, with lanes of a
   * trace's header; steps that the page already has are sent again.
   */
  start(request, hear) {
    const run = `browser-${this.#count++}`;
    this.#runs.set(run, hear);
    this.#let(run, request).then((problem) => problem && this.#runs.get(run)?.([problem]));
    const asks = (name, asked) => () => this.#ask(name, run, asked);
    return {
      leave: () => this.#drop(run),
      pause: asks("pause"),
      resume: asks("resume"),
      step: asks("resume", { steps: 1 }),
      stop: asks("stop"),
    };
  }

  /** Sends a request to the worker. A promise of null, or of a message with the reason why the run cannot start. */
  async #let(run, request) {
    if (!(await mayRun(codesOf(request.lanes)))) return { refused: "The rule was not let run." };
    return this.#runs.has(run) ? this.#post(run, request) : null;
  }

  #post(run, request) {
    const lacks = lacking();
    if (lacks) return { lost: `${GONE}it has no ${lacks}.` };
    try {
      const whole = { ...wholeRequest(request), machine: MACHINE };
      this.#worker ??= this.#newWorker();
      this.#worker.postMessage({ ask: "start", run, request: whole });
      return null;
    } catch (error) {
      if (error instanceof DOMException) return { lost: `${GONE}${error.message}` }; // workers are forbidden
      if (!(error instanceof RangeError)) throw error;
      return { refused: error.message };
    }
  }

  #ask(name, run, asked = {}) {
    if (!this.#worker) return Promise.resolve(null);
    return new Promise((then) => {
      this.#calls.set(this.#count, then);
      this.#worker.postMessage({ ask: name, call: this.#count++, run, ...asked });
    });
  }

  /** Gives up a run. */
  #drop(run) {
    this.#ask("stop", run);
    this.#runs.delete(run);
    this.#worker?.postMessage({ ask: "drop", run });
  }

  document(run) {
    return this.#ask("document", run);
  }

  /** A promise of [[id, piece, p], ...], the likely tokens of a position, or null. */
  async top({ id: lane, source }, cell, step) {
    return source?.run && step >= 0 ? this.#ask("top", source.run, { lane, cell, step }) : null;
  }

  /** A promise of {id, piece} of the token that is a whole text, or of {problem}. */
  token(text) {
    if (lacking()) return null;
    this.#worker ??= this.#newWorker();
    return this.#ask("token", undefined, { text });
  }

  /** See BrowserClient. */
  measured(text) {
    return overlong(text) ? { tooLong: `Too long: ${overlong(text)}` } : this.#ask("measured", undefined, { text });
  }

  /** See Inspector. A promise of null if no decoder is loaded yet. */
  async attended(_, lane, cell, step) {
    const tokens = [...lane.tokens(step - 1)];
    const list = page.now.decoder && (await this.#ask("attended", undefined, { tokens, cell }));
    return Array.isArray(list) ? list : null;
  }

  /** A promise of the decoder as script elements for an exported page, see `decoderInside`. */
  inside(model, presets) {
    return decoderInside(model, presets);
  }

  #newWorker() {
    const worker = new Worker(this.url); // a page that was opened from a disk cannot start module workers
    worker.onmessage = ({ data: { call, answer, run, message, busy } }) => {
      if (busy !== undefined) return this.#watch(busy);
      if (message?.open) page.set({ decoder: true });
      if (run !== undefined) return this.#runs.get(run)?.([message]);
      this.#calls.get(call)?.(answer);
      this.#calls.delete(call);
    };
    this.where().then((where) => worker.postMessage({ ask: "where", where }));
    worker.onerror = ({ message }) => this.#lose(`${GONE}${message || "its worker did not start"}.`);
    return worker;
  }

  #watch(busy) {
    clearTimeout(this.timer);
    if (busy) this.timer = setTimeout(() => this.#lose(ENDLESS), MOST_MS);
  }

  /** Ends the worker, and tells the reason to everything that waits for it. */
  #lose(lost) {
    clearTimeout(this.timer);
    this.#worker.terminate();
    this.#worker = null;
    page.set({ decoder: false });
    const runs = [...this.#runs.values()];
    const calls = [...this.#calls.values()];
    this.#runs.clear();
    this.#calls.clear();
    for (const then of calls) then(null);
    for (const hear of runs) hear([{ lost }]);
  }
}
