// Runs that this browser computes, in a worker. The same door as ServerSource's (server_source.js), and the same
// messages; beside them {loading: {got, all}}, bytes, while the decoder is fetched.

const GONE = "This browser cannot decode: ";

export class BrowserSource {
  #worker = null;
  #runs = new Map();
  #calls = new Map();
  #count = 0;

  /** worker: the address of its script. where: {model, runtime, runtimeBytes}, see `assemble`. machine: what a trace
   * calls this computer. Nothing is fetched before a run is asked for. */
  constructor({ worker, where, machine = "a browser" }) {
    Object.assign(this, { url: worker, where, machine });
  }

  /** Asks for a run: {model, prompt, prompt_tokens?, lanes}, each lane whole as a trace's header has it, with `skip`,
   * the steps that the page has. hear(messages): {loading}, {refused} or {lost}, a sentence, or the run's own. */
  start(request, hear) {
    this.#worker ??= this.#made();
    const run = new BrowserRun(this, `browser-${this.#count++}`);
    this.#runs.set(run.id, hear);
    this.#worker.postMessage({
      ask: "start",
      run: run.id,
      request: { ...request, machine: this.machine },
      where: this.where,
    });
    return run;
  }

  /** What the worker answers. */
  ask(name, run, asked = {}) {
    return new Promise((then) => {
      this.#calls.set(this.#count, then);
      this.#worker.postMessage({ ask: name, call: this.#count++, run, ...asked });
    });
  }

  /** No message of that run is heard any more. */
  drop(run) {
    this.#runs.delete(run);
    this.#worker.postMessage({ ask: "drop", run });
  }

  document(run) {
    return this.ask("document", run);
  }

  /** [[id, piece, p], ...]: likely tokens at a position, or null. */
  async top({ source }, cell, step) {
    return source?.run && step >= 0 ? this.ask("top", source.run, { lane: source.id, cell, step }) : null;
  }

  #made() {
    const worker = new Worker(this.url, { type: "module" });
    worker.onmessage = ({ data: { call, answer, run, message } }) => {
      if (run !== undefined) return this.#runs.get(run)?.([message]);
      this.#calls.get(call)?.(answer);
      this.#calls.delete(call);
    };
    worker.onerror = ({ message }) => {
      this.#worker = null;
      const lost = `${GONE}${message || "its worker did not start"}.`;
      for (const hear of this.#runs.values()) hear([{ lost }]);
      this.#runs.clear();
    };
    return worker;
  }
}

class BrowserRun {
  constructor(source, id) {
    Object.assign(this, { source, id });
  }

  /** It never waits for its turn: what has not begun is not heard of any more. */
  leave() {
    this.source.ask("stop", this.id);
    this.source.drop(this.id);
  }

  pause() {
    return this.source.ask("pause", this.id);
  }

  resume() {
    this.source.ask("resume", this.id);
  }

  step() {
    this.source.ask("resume", this.id, { steps: 1 });
  }

  stop() {
    return this.source.ask("stop", this.id);
  }
}
