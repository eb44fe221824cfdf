// Runs that this browser computes, in a worker. Interface and messages are those of ServerSource (server_source.js).
// There are two more messages: {loading: {got, all}}, bytes, while the decoder is fetched, and {note}, a sentence.

import "../loaded_first.js";
import { codesOf } from "../trace/typed.js";
import { overlong, wholeRequest } from "./asked.js";
import { decoderInside, partsOf, workerAddress } from "./decoder_files.js";
import { page } from "./state.js";
import { mayRun } from "./trust.js";

const GONE = "This browser cannot decode: ";
const MOST_MS = 3000;
const ENDLESS = "The rule was stopped: it did not come back within 3 s.";

const MACHINE = "a browser"; // what a trace calls this computer

/** What decodes that model in this browser. */
export const decoderOf = async (model) => new BrowserSource(await workerAddress(), () => partsOf(model));

/** What a decoder needs and the browser lacks, or undefined. */
const lacking = () => ["Worker", "WebAssembly", "DecompressionStream"].find((name) => !(name in globalThis));

class BrowserSource {
  #worker = null;
  #runs = new Map();
  #calls = new Map();
  #count = 0;

  /**
   * worker: the address of its script. where(): a promise of DecoderPlaces, see `assemble`.
   * Nothing is fetched before a run is asked for.
   */
  constructor(worker, where) {
    Object.assign(this, { url: worker, where });
  }

  /** Has the decoder ready before a run is asked for. */
  async prepare() {
    if (lacking()) return;
    this.#worker ??= this.#newWorker();
    await this.#ask("prepare");
    page.set({ decoder: this.#worker !== null });
  }

  /**
   * Asks for a run. hear(messages) gets messages of the run, and {loading}, {note}, {refused} or {lost} with a sentence.
   * request: see `wholeRequest`. One that goes on with what the page has is {model, prompt, prompt_tokens, lanes}, with
   * lanes as a trace's header has them; the steps that the page has come again.
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

  /** What is wrong with a request, a message, no sooner than its caller has the run; or null: then it is on its way. */
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

  /** A run never waits for its turn: what has not begun is not heard of any more. */
  #drop(run) {
    this.#ask("stop", run);
    this.#runs.delete(run);
    this.#worker?.postMessage({ ask: "drop", run });
  }

  document(run) {
    return this.#ask("document", run);
  }

  /** [[id, piece, p], ...]: likely tokens at a position, or null. */
  async top({ id: lane, source }, cell, step) {
    return source?.run && step >= 0 ? this.#ask("top", source.run, { lane, cell, step }) : null;
  }

  /** {id, piece} of the one token that a text is, or {problem}. */
  token(text) {
    if (lacking()) return null;
    this.#worker ??= this.#newWorker();
    return this.#ask("token", undefined, { text });
  }

  /** See BrowserClient. */
  measured(text) {
    return overlong(text) ? { tooLong: `Too long: ${overlong(text)}` } : this.#ask("measured", undefined, { text });
  }

  /** See Inspector; null where nothing was fetched for a run yet. */
  async attended(_, lane, cell, step) {
    const tokens = [...lane.tokens(step - 1)];
    const list = page.now.decoder && (await this.#ask("attended", undefined, { tokens, cell }));
    return Array.isArray(list) ? list : null;
  }

  /** The decoder as the script elements of a page that holds it, see `decoderInside`. */
  inside(model, presets) {
    return decoderInside(model, presets);
  }

  #newWorker() {
    const worker = new Worker(this.url); // a file from a disk may start no module: its origin is nobody's
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

  /** Ends the worker, and says why to all that wait for it. */
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
