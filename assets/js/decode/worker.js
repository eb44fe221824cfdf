// The worker that decodes in the visitor's browser. BrowserSource (assets/js/run/browser_source.js) sends {ask, ...},
// and gets the same messages of a run that the server sends.

import variant from "@jitl/quickjs-wasmfile-release-sync";
import * as ort from "onnxruntime-web/wasm";
import { newQuickJSWASMModuleFromVariant, newVariant } from "quickjs-emscripten-core";
import { Pieces } from "../trace/pieces.js";
import { codesOf } from "../trace/typed.js";
import { NonFiniteLogits, Run } from "./algorithm.js";
import { readDecoder } from "./decoder.js";
import { assemble } from "./fetching.js";
import { OwnRule } from "./own.js";
import { race } from "./race.js";
import { Recorder } from "./recorder.js";
import { Allowance, Snapshots } from "./snapshots.js";
import { settled } from "./word_lists.js";

const MOST_ATTENDED = 6;
const WARM = 64; // tokens of the forward pass that compiles the code
const LEAST_ANSWER = 16; // the fewest tokens of an answer
const MOST_WORD = 1000; // the most characters of a text that is looked up as one token

let newInterpreter = null;
let parts = null; // a promise of the decoder's parts, null before they are needed
let tellWhere;
const where = new Promise((then) => {
  tellWhere = then;
});
const runs = new Map();
const allowance = new Allowance();
const channel = new MessageChannel();
const waiting = [];
channel.port1.onmessage = () => waiting.shift()();

/** Lets the worker receive messages between two steps. A timer would wait for some milliseconds. */
const breath = () =>
  new Promise((then) => {
    waiting.push(then);
    channel.port2.postMessage(null);
  });

/** A function that makes a new QuickJS module, in which typed rules run. code: a promise of QuickJS's WebAssembly. */
async function interpreters(code) {
  const wasmModule = await WebAssembly.compile(await code);
  return () => newQuickJSWASMModuleFromVariant(newVariant(variant, { wasmModule }));
}

/** The promise of `assemble`. After a failure the next call tries again. */
function assembled(hear = () => {}) {
  parts ??= where.then((address) => assemble(ort, address, hear));
  parts.catch(() => {
    parts = null;
  });
  return parts;
}

OwnRule.watch = (busy) => postMessage({ busy }); // the page ends a worker that stays busy for too long

class WorkerRun {
  #seq = 0;
  #left = Number.POSITIVE_INFINITY; // the number of steps until the run pauses
  #stopped = false;
  #rested = [];
  #goOn = null;
  #loading = true;

  constructor(id, request) {
    Object.assign(this, { id, request, recorder: null, snapshots: {} });
  }

  #tell(message) {
    postMessage({ run: this.id, message: { run: this.id, seq: this.#seq++, ...message } });
  }

  /** Sends a message of the run. */
  #say(message) {
    postMessage({ run: this.id, message });
  }

  /** Decodes until the run ends or fails; a failure is sent as a sentence. */
  go() {
    this.ended = this.#go().finally(() => this.#wake());
    return this.ended;
  }

  async #go() {
    let decoder = null;
    try {
      decoder = await assembled((got, all) => this.#loading && this.#say({ loading: { got, all } }));
      if (codesOf(this.request.lanes).length) {
        newInterpreter ??= await interpreters(decoder.interpreter());
        OwnRule.quickjs = await newInterpreter(); // kept by the rules that the race makes at once
      }
      if (this.#stopped) return;
      const prompt = await this.#prompt(decoder);
      if (this.#stopped) return;
      this.#open(decoder, prompt);
      if (decoder.note) this.#say({ note: decoder.note });
      decoder.note = "";
      await this.#steps(decoder);
    } catch (error) {
      this.#loading = false; // after a failure the rest of the files may still be arriving
      if (!(error instanceof RangeError || error instanceof NonFiniteLogits)) throw error;
      if (!decoder) this.#say({ lost: error.message });
      else if (!this.recorder) this.#say({ refused: error.message });
      else this.#tell({ end: "failed", problem: `The run stopped: ${error.message}.` });
    }
  }

  /** {ids, lists}: the token ids and word lists of the run's prompt. */
  async #prompt({ engine, tokenizer, shape }) {
    const { prompt, prompt_tokens = null, lists, lanes } = this.request;
    if (prompt_tokens) return { ids: prompt_tokens, lists: lists ?? [] };
    const { gen_length: masks } = lanes[0].settings;
    const read = tokenizer.prompt(prompt, shape.mask_id);
    const fits = read.ids.length + masks <= shape.network.max_length; // a longer run is refused later
    return fits ? settled(engine, shape, read, masks) : read;
  }

  #open({ engine, tokenizer, shape, digits }, { ids: tokens, lists }) {
    const { model, prompt, lanes, machine } = this.request;
    const { settings } = lanes[0];
    const { vocab_size, n_layers, d_model, max_length } = shape.network;
    const promptLength = tokens.length;
    const wanted = settings.gen_length;
    const total = promptLength + wanted;
    if (total > max_length)
      throw new RangeError(
        `Prompt is too long: ${promptLength} tokens and ${wanted} to generate make ${total}; at most ${max_length} positions fit here.`,
      );
    if (!wanted && !tokens.includes(shape.mask_id))
      throw new RangeError("Prompt has no blank and Generated length is 0: leave a blank (__), or set a length.");
    const known = (token) => token === undefined || (Number.isInteger(token) && token >= 0 && token < vocab_size);
    const written = lanes.flatMap((lane) => (lane.events ?? []).map(({ token }) => token));
    if (![...tokens, ...written].every(known)) throw new RangeError(`Its tokens are not those of the model ${model}.`);
    // throws a RangeError for lanes and settings that do not fit
    const runs = lanes.map((lane) => new Run(shape, tokens, readDecoder(lane), { lists }));
    const header = {
      model: { name: model, vocab_size, n_layers, d_model, weights: digits },
      prompt,
      prompt_tokens: tokens,
      ...(lists.length ? { lists } : {}),
      mask_id: shape.mask_id,
      eos_id: shape.ends[0] ?? null,
      ...(shape.ends.length > 1 ? { ends: shape.ends } : {}),
      length: total,
      steps: Math.max(...runs.map(({ schedule }) => schedule.steps)),
      lanes: lanes.map(({ engine: _, ...lane }) => lane),
      engine: engine.name,
      timed_together: [{ lanes: lanes.map(({ id }) => id), machine }],
      created: `${new Date().toISOString().slice(0, 19)}Z`,
    };
    this.recorder = new Recorder(header, (ids) => tokenizer.pieces(ids));
    this.#tell({ open: this.recorder.start(), label: model, pausable: true });
  }

  /**
   * The snapshots at which lanes begin, by lane. The request names the run that has them. Other lanes begin at step
   * 0.
   */
  #begins() {
    const { header } = this.recorder;
    const begins = {};
    const { run, lane: of, steps } = this.request.from ?? {};
    const origin = runs.get(run);
    const promptOf = ({ prompt_tokens, lists }) => JSON.stringify([prompt_tokens, lists]);
    const same = origin?.recorder && promptOf(origin.recorder.header) === promptOf(header);
    header.lanes.forEach((lane, i) => {
      const typed = codesOf([lane]).length > 0; // the variables of a typed rule cannot be copied
      const known = same && !typed ? origin.snapshots[of] : null;
      const step = known?.before(lane, steps[i]) ?? 0;
      if (step) {
        begins[lane.id] = { snapshots: known, step };
        this.snapshots[lane.id] = known.until(step, lane, this);
        this.recorder.adopt(lane.id, origin.recorder, of, step);
      } else if (!typed) this.snapshots[lane.id] = new Snapshots(lane, allowance, this);
    });
    return begins;
  }

  async #steps({ engine, shape }) {
    const { header } = this.recorder;
    const how = { begins: this.#begins(), snapshots: this.snapshots, lists: header.lists };
    for await (const turn of race(engine, shape, header.prompt_tokens, header.lanes, how)) {
      if (turn.length) {
        const message = this.recorder.take(turn);
        this.#tell(message);
        this.#left -= message.records ? 1 : 0;
      }
      await breath();
      if (this.#left <= 0 && !this.#stopped) await this.#rest();
      if (this.#stopped) return this.#tell({ end: "stopped", problem: null });
    }
    this.#tell({ end: "finished", problem: null });
  }

  #rest() {
    this.#wake();
    return new Promise((then) => {
      this.#goOn = then;
    });
  }

  /** Fulfils the promises of `pause`: no step is being computed. */
  #wake() {
    for (const then of this.#rested.splice(0)) then(true);
  }

  /** Continues the run. steps: the number of steps of every lane until the run pauses. */
  resume({ steps = Number.POSITIVE_INFINITY } = {}) {
    this.#left = steps;
    this.#goOn?.();
    this.#goOn = null;
  }

  /** Pauses the run. The promise is fulfilled when no step is being computed. */
  pause() {
    if (this.#goOn) return true;
    this.#left = 0;
    return new Promise((then) => {
      this.#rested.push(then);
    });
  }

  /** Ends the run after its present step. The promise is fulfilled then. */
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

const asks = {
  /** Loads the decoder, and compiles its code by a forward pass. */
  async prepare() {
    const { engine } = await assembled();
    await engine.attention(new Int32Array(WARM), 0);
  },

  /**
   * {id, piece} of the token that is a whole text; else {problem, pieces}: a sentence, and [[id, piece], ...] of the
   * text's tokens. A token of the text after a space is preferred. It mirrors `one_token` of surelock/ui/request.py.
   */
  async token({ text }) {
    const { tokenizer, shape } = await assembled();
    if (!text.trim()) return { problem: "Write a word first." };
    const { length } = Array.from(text);
    if (length > MOST_WORD)
      return { problem: `A token is shorter than ${length.toLocaleString("en")} characters; try a common word.` };
    const id = tokenizer.single(text, shape.mask_id);
    if (id !== undefined) return { id, piece: tokenizer.pieces([id])[id] };
    const ids = tokenizer.encode(` ${text.trim()}`);
    const texts = tokenizer.pieces(ids);
    const pieces = ids.includes(shape.mask_id) ? [] : ids.map((id) => [id, texts[id]]);
    return { problem: `“${text}” is not one token of this model; try a shorter or a more common word.`, pieces };
  },

  /** The warnings {foreign, rare, tooLong} of a prompt. They mirror `refit_to_prompt` of surelock/ui/form.py. */
  async measured({ text }) {
    const { tokenizer, shape } = await assembled();
    const tokens = tokenizer.encode(text, shape.mask_id);
    const pieces = new Pieces();
    const most = shape.network.max_length;
    pieces.add(tokenizer.pieces(tokens));
    const sentence = `Too long: ${tokens.length} tokens; at most ${most} fit here, ${LEAST_ANSWER} of them for the answer.`;
    const tooLong = tokens.length + LEAST_ANSWER > most ? sentence : "";
    const written = tokens.filter((token) => token !== shape.mask_id); // mask tokens are blanks, not parts of words
    return { foreign: pieces.isForeign(tokens), rare: pieces.isRare(written), tooLong };
  },

  /**
   * [[position, share], ...]: the positions that a position attends to most. It mirrors surelock/ui/attended.py.
   * tokens: the token ids of the text, -1 for a masked position. cell: the position that attends.
   */
  async attended({ tokens, cell }) {
    const { engine, shape } = await assembled();
    const ids = Int32Array.from(tokens, (token) => (token < 0 ? shape.mask_id : token));
    const shares = Array.from(await engine.attention(ids, cell), (share, at) => [at, Number(share.toFixed(4))]);
    const others = shares.filter(([at]) => at !== cell && tokens[at] >= 0);
    return others.sort(([, a], [, b]) => b - a).slice(0, MOST_ATTENDED);
  },
};

/** The answer to a question, or an object with a sentence about what went wrong. */
async function answered(answerer, ask, question) {
  try {
    return (await answerer[ask](question)) ?? null;
  } catch (error) {
    if (error instanceof RangeError) return { problem: error.message };
    throw error;
  }
}

// An unexpected rejection of a promise becomes an error, which ends the worker: the page hears only of errors.
self.onunhandledrejection = ({ reason }) =>
  setTimeout(() => {
    throw reason;
  });

self.onmessage = async ({ data: { ask, call, run, ...question } }) => {
  if (ask === "start") {
    const started = new WorkerRun(run, question.request);
    runs.set(run, started);
    return started.go();
  }
  if (ask === "where") return tellWhere(question.where);
  if (ask === "drop") return runs.delete(run);
  const answerer = run === undefined ? asks : runs.get(run);
  const answer = answerer ? await answered(answerer, ask, question) : null;
  postMessage({ call, answer });
};
