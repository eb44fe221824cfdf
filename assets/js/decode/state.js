// What a run knows: its sequence, how far that is, and the state of every position. All that a compute rule and an
// unmask policy may decide by. A browser decodes one prompt at a time: a slot of the library is a position here.

import { find, flags, put } from "./arrays.js";

/** A prompt followed by masks. tokens and masked [total] change as the run unmasks. */
export class Canvas {
  constructor(prompt, { gen_length }, mask_id) {
    const total = prompt.length + gen_length;
    Object.assign(this, { mask_id, total, generated_from: prompt.length });
    this.tokens = new Int32Array(total).fill(mask_id);
    this.tokens.set(prompt);
    this.masked = flags(total, (slot) => slot >= prompt.length);
  }

  commit(slots, tokens) {
    put(this.tokens, slots, tokens);
    put(this.masked, slots, 0);
  }

  mask(slots) {
    put(this.tokens, slots, this.mask_id);
    put(this.masked, slots, 1);
  }

  /** [total]: 1 at the slots of all lists. */
  flags(...lists) {
    const marked = new Uint8Array(this.total);
    for (const slots of lists) put(marked, slots, 1);
    return marked;
  }

  /** Values of `slots` as a table [total, width], `fill` everywhere else. */
  grid(values, fill, slots, width = 1) {
    const out = new values.constructor(this.total * width).fill(fill);
    slots.forEach((slot, i) => {
      out.set(values.subarray(i * width, (i + 1) * width), slot * width);
    });
    return out;
  }
}

/** How far a sequence is: the block it fills, the step within it, and commits still owed from earlier steps.
 * early: a block ends as soon as none of its positions is masked, not only after its steps. running: it has not ended. */
export class Schedule {
  #canvas;
  #early;
  #length;
  #blocks;
  #steps;
  #block = 0;
  #owed = 0;
  steps_in_block = 0;
  running = true;

  constructor(canvas, { gen_length, block_length, steps }, early) {
    [this.#canvas, this.#early] = [canvas, early];
    this.#length = block_length || gen_length;
    this.#blocks = gen_length / this.#length;
    this.#steps = Math.floor((steps || gen_length) / this.#blocks);
  }

  /** Whether this is the last step of the block, which must commit all that is still masked there. */
  get closing() {
    return this.steps_in_block === this.#steps - 1;
  }

  /** [start, stop] of the block that is filled. */
  get block() {
    const start = this.#canvas.generated_from + this.#block * this.#length;
    return [start, start + this.#length];
  }

  /** [start, stop] of what may be committed: the block, and what is before it. */
  get open() {
    return [this.#canvas.generated_from, this.block[1]];
  }

  /** Positions of this step by an even share of the block's, the remainder in the first steps. */
  get share() {
    const share = Math.floor(this.#length / this.#steps);
    return share + (this.steps_in_block < this.#length % this.#steps);
  }

  /** Positions to commit in this step: its share, and what is owed. */
  get quota() {
    return this.share + this.#owed;
  }

  /** Close the step. Commits that selection could not meet carry over to the next. */
  advance(committed) {
    this.#owed = Math.max(0, this.quota - committed);
    this.steps_in_block += 1;
    const early = this.#early && !this.#canvas.masked.subarray(...this.open).includes(1);
    if (this.steps_in_block < this.#steps && !early) return;
    this.#block += 1;
    this.steps_in_block = this.#owed = 0;
    this.running = this.#block < this.#blocks;
  }
}

/** The state of Algorithm 1 (lines 1-3): a value for each position. They mean what those of surelock/decoding/state.py
 * do. */
export class State {
  #kept = {};

  constructor(canvas, schedule) {
    Object.assign(this, { canvas, schedule, step: 0, tokens: canvas.tokens, masked: canvas.masked });
    const { total } = canvas;
    [this.locked, this.open] = [new Uint8Array(total), new Uint8Array(total)];
    this.visible = new Int32Array(total);
    for (const name of ["computed_at", "locked_at", "unlocked_at", "probed_at"])
      this[name] = new Int32Array(total).fill(-1);
    this.kl = new Float64Array(total).fill(Number.POSITIVE_INFINITY);
    this.confidence = new Float64Array(total).fill(Number.NaN);
  }

  /** A rule's or a policy's own array, [total], kept from step to step; `fill` everywhere at first. */
  kept(name, fill) {
    this.#kept[name] ??= new Float64Array(this.canvas.total).fill(fill);
    return this.#kept[name];
  }

  /** The slots that a step may compute without probing. */
  active() {
    return find(this.locked.map((locked) => !locked));
  }

  lock(slots) {
    put(this.locked, slots, 1);
    put(this.locked_at, slots, this.step);
  }

  /** Unlock `slots`: they are computed again, and have no earlier posterior to be compared with. */
  unlock(slots) {
    put(this.locked, slots, 0);
    put(this.unlocked_at, slots, this.step);
    put(this.kl, slots, Number.POSITIVE_INFINITY);
  }
}
