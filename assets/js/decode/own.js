// A rule that a visitor typed, which consists of two functions in JavaScript. See surelock/decoding/own.py and
// docs/page.md.

import { find, NONE, put, take } from "./arrays.js";
import { ComputeRule } from "./compute.js";
import { Interpreter } from "./interpreter.js";

const READ = "tokens that the typed rule has read";
const LIKELIEST = "likeliest tokens";

/** Numbers for JSON: a number that is not finite becomes null. */
const plain = (values) => Array.from(values, (value) => (Number.isFinite(value) ? value : null));
const shown = (value) => JSON.stringify(value).slice(0, 60);
const truths = (values) => Array.from(values, Boolean);

/** The rule of a visitor's text. */
export class OwnRule extends ComputeRule {
  static kind = "own";
  /**
   * quickjs: the module of quickjs-emscripten-core in which rules run that are created from now on. Every run needs a
   * new module, since a rule's text may break it. watch(busy): called when a text begins and ends to run.
   */
  static quickjs = null;
  static watch = () => {};

  #quickjs = OwnRule.quickjs;
  #interpreter = null;

  rows(state, active) {
    const read = state.kept(READ, -1);
    const rows = this.#called("rows", state, active);
    read.set(state.tokens);
    if (rows === undefined) throw new RangeError("your rule has no function rows");
    return this.#positions("rows", state, rows, new Set(active), "computed: it is locked, or there is none");
  }

  watches(_state, slots) {
    return new Uint8Array(slots.length).fill(1);
  }

  after(state, reading) {
    const active = state.active();
    const likeliest = reading.likeliest();
    const watched = find(likeliest.map((token) => token >= 0));
    put(state.kept(LIKELIEST, -1), take(reading.slots, watched), take(likeliest, watched));
    const locks = this.#called("after", state, active) ?? [];
    const written = new Set(Array.from(reading.slots).filter((slot) => !state.masked[slot] && !state.locked[slot]));
    const locked = this.#positions("after", state, locks, written, "locked: it is masked, or was not computed");
    return { locked, unlocked: NONE };
  }

  end() {
    this.#interpreter?.end();
    this.#interpreter = null;
  }

  #called(name, state, active) {
    const read = state.kept(READ, -1);
    const isNew = (token, slot) => token >= 0 && token !== state.tokens[slot] && !state.masked[slot];
    const known = {
      step: state.step,
      length: state.canvas.total,
      prompt: state.canvas.generated_from,
      block: state.schedule.block,
      active: Array.from(active),
      written: Array.from(find(read.map(isNew))),
      masked: truths(state.masked),
      locked: truths(state.locked),
      visible: plain(state.visible),
      computed_at: plain(state.computed_at),
      kl: plain(state.kl),
      confidence: plain(state.confidence),
      likeliest: Array.from(state.kept(LIKELIEST, -1)),
    };
    OwnRule.watch(true);
    try {
      this.#interpreter ??= new Interpreter(this.#quickjs, this.code);
      return this.#interpreter.call(name, known);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      throw new RangeError(`${name} of your rule failed in step ${state.step + 1}: ${error.message}`);
    } finally {
      OwnRule.watch(false);
    }
  }

  /** The slots of the positions that the rule returned, in ascending order. Throws a RangeError for a wrong answer. */
  #positions(name, { step, canvas }, positions, allowed, what) {
    const must = `${name} of your rule, in step ${step + 1}, must return a list of positions`;
    if (!Array.isArray(positions)) throw new RangeError(must);
    const chosen = new Uint8Array(canvas.total);
    for (const position of positions) {
      if (!Number.isInteger(position)) throw new RangeError(`${must}, and ${shown(position)} is none`);
      if (!allowed.has(position)) throw new RangeError(`${must}, and ${position} cannot be ${what}`);
    }
    put(chosen, Int32Array.from(positions), 1);
    return find(chosen);
  }
}
