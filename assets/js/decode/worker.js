// Decodes in the visitor's browser, in a worker: what BrowserSource (assets/js/run/browser_source.js) asks, and what it
// hears, are {ask, ...} and the messages that the server sends of a run.

import * as ort from "onnxruntime-web/wasm";
import { assemble } from "./parts.js";
import { race } from "./race.js";
import { Recorder } from "./recorder.js";
import { NonFiniteLogits } from "./run.js";

let parts = null; // a promise of them, once they are asked for
const runs = new Map();
const channel = new MessageChannel();
const waiting = [];
channel.port1.onmessage = () => waiting.shift()();

/** Lets what was asked meanwhile be heard; a timer would wait for some milliseconds. */
const breath = () =>
  new Promise((then) => {
    waiting.push(then);
    channel.port2.postMessage(null);
  });

class WorkerRun {
  #seq = 0;
  #left = Number.POSITIVE_INFINITY; // steps until it rests
  #stopped = false;
  #rested = [];
  #goOn = null;

  constructor(id, request) {
    Object.assign(this, { id, request, recorder: null });
  }

  #tell(message) {
    postMessage({ run: this.id, message: { run: this.id, seq: this.#seq++, ...message } });
  }

  /** What comes before it opens. */
  #say(message) {
    postMessage({ run: this.id, message });
  }

  /** Decodes, to its end or to a sentence why not. */
  go(where) {
    this.ended = this.#go(where).finally(() => this.#wake());
    return this.ended;
  }

  async #go(where) {
    try {
      parts ??= assemble(ort, where, (got, all) => this.#say({ loading: { got, all } }));
      const { engine, tokenizer, shape } = await parts;
      this.#open(engine, tokenizer, shape);
      await this.#steps(engine, shape);
    } catch (error) {
      if (!(error instanceof RangeError || error instanceof NonFiniteLogits)) throw error;
      if (!this.recorder) {
        parts = null; // so that the next run asks anew
        return this.#say({ refused: error.message });
      }
      this.#tell({ end: "failed", problem: `The run stopped: ${error.message}.` });
    }
  }

  #open(engine, tokenizer, shape) {
    const { model, prompt, prompt_tokens = null, lanes, machine } = this.request;
    const tokens = prompt_tokens ?? tokenizer.encode(prompt);
    const { settings } = lanes[0];
    const { vocab_size, n_layers, d_model } = shape.network;
    const header = {
      model: { name: model, vocab_size, n_layers, d_model },
      prompt,
      prompt_tokens: tokens,
      mask_id: shape.mask_id,
      eos_id: shape.eos_id,
      length: tokens.length + settings.gen_length,
      steps: Math.max(...lanes.map((lane) => lane.settings.steps || settings.gen_length)),
      lanes: lanes.map(({ skip, ...lane }) => lane),
      engine: engine.name,
      timed_together: [{ lanes: lanes.map(({ id }) => id), machine }],
      created: `${new Date().toISOString().slice(0, 19)}Z`,
    };
    this.recorder = new Recorder(header, (ids) => tokenizer.pieces(ids));
    this.#tell({ open: this.recorder.start(), label: model, pausable: true });
  }

  async #steps(engine, shape) {
    const { header } = this.recorder;
    const skip = new Map(this.request.lanes.map((lane) => [lane.id, lane.skip ?? 0]));
    for await (const told of race(engine, shape, header.prompt_tokens, header.lanes)) {
      const { records, pieces } = this.recorder.take(told);
      this.#tell({ records: records.filter(({ lane, step }) => step >= skip.get(lane)), pieces });
      this.#left -= 1;
      await breath();
      if (this.#left <= 0 && !this.#stopped) await this.#rest();
      if (this.#stopped) return this.#tell({ end: "stopped", problem: null });
    }
    this.#tell({ end: "finished", problem: null });
  }

  /** Until it is told to go on. */
  #rest() {
    this.#wake();
    return new Promise((then) => {
      this.#goOn = then;
    });
  }

  /** Tells those who wait that no step is computed. */
  #wake() {
    for (const then of this.#rested.splice(0)) then(true);
  }

  /** Goes on for so many steps of each lane. */
  resume({ steps = Number.POSITIVE_INFINITY } = {}) {
    this.#left = steps;
    this.#goOn?.();
    this.#goOn = null;
  }

  /** Resolves when no step of it is computed any more. */
  pause() {
    if (this.#goOn) return true;
    this.#left = 0;
    return new Promise((then) => {
      this.#rested.push(then);
    });
  }

  /** Ends it after its present step; resolves then. */
  async stop() {
    this.#stopped = true;
    this.resume({ steps: 0 });
    await this.ended;
    return true;
  }

  document() {
    return this.recorder?.document() ?? null;
  }

  top({ lane, cell, step }) {
    return this.recorder?.top(lane, step, cell) ?? [];
  }
}

self.onmessage = async ({ data: { ask, call, run, ...asked } }) => {
  if (ask === "start") {
    const made = new WorkerRun(run, asked.request);
    runs.set(run, made);
    return made.go(asked.where);
  }
  if (ask === "drop") return runs.delete(run);
  postMessage({ call, answer: (await runs.get(run)?.[ask](asked)) ?? null });
};
