// The state of a run: its canvas, its schedule, and the state of every position. Compute rules and unmasking policies
// decide by it and by what the network returned. A browser decodes one prompt at a time, so a slot of the library is a
// position here.

import { count, find, flags, put } from "./arrays.js";

/**
 * The canvas: a prompt, which may contain masks, followed by masks. The run changes tokens and masked, [total].
 * given [total]: 1 at positions that are not masked at the start.
 * generated_from: the position of the first mask.
 * given_until: the position after the last one that is not masked at the start.
 * Throws a RangeError if there is no mask.
 */
export class Canvas {
  constructor(prompt, { gen_length }, mask_id) {
    const total = prompt.length + gen_length;
    this.tokens = new Int32Array(total).fill(mask_id);
    this.tokens.set(prompt);
    this.masked = flags(total, (slot) => this.tokens[slot] === mask_id);
    this.given = flags(total, (slot) => !this.masked[slot]);
    const generated_from = this.masked.indexOf(1);
    const given_until = this.given.lastIndexOf(1) + 1;
    Object.assign(this, { mask_id, total, generated_from, given_until });
    if (generated_from < 0) throw new RangeError("prompt 1 has no mask and gen_length is 0: there is nothing to write");
  }

  /** Takes over the tokens of another canvas of the same prompt. */
  goOnFrom(other) {
    this.tokens.set(other.tokens);
    this.masked.set(other.masked);
  }

  commit(slots, tokens) {
    put(this.tokens, slots, tokens);
    put(this.masked, slots, 0);
  }

  mask(slots) {
    put(this.tokens, slots, this.mask_id);
    put(this.masked, slots, 1);
  }

  /** Flags that are 1 at every slot that is in one of the lists, [total]. */
  flags(...lists) {
    const marked = new Uint8Array(this.total);
    for (const slots of lists) put(marked, slots, 1);
    return marked;
  }

  /** A table [total, width] with the values of `slots` in their rows, and `fill` everywhere else. */
  grid(values, fill, slots, width = 1) {
    const out = new values.constructor(this.total * width).fill(fill);
    slots.forEach((slot, i) => {
      out.set(values.subarray(i * width, (i + 1) * width), slot * width);
    });
    return out;
  }
}

/** Throws a RangeError unless length, block length and steps fit together after a prompt without masks. */
function checkBlocks({ gen_length: length, block_length: block, steps }) {
  const blocks = length / (block || length);
  if (block && length % block) throw new RangeError(`block_length (${block}) must divide gen_length (${length})`);
  if (steps > length) throw new RangeError(`steps (${steps}) must be at most gen_length (${length})`);
  if (steps % blocks) throw new RangeError(`steps (${steps}) must be a multiple of the number of blocks (${blocks})`);
}

/** The number of commits of every step: even shares. If a remainder is left, the first steps commit one more. */
export const evenQuotas = (masks, steps) =>
  Array.from({ length: steps }, (_, step) => Math.floor(masks / steps) + (step < masks % steps));

/** The blocks {start, stop, quotas} of a canvas, see `Schedule` of surelock/decoding/state.py. */
function blocksOf(canvas, settings, quotas) {
  const { generated_from: first, total, masked } = canvas;
  if (total - first === settings.gen_length) checkBlocks(settings); // a plain prompt
  const length = settings.block_length || total - first;
  const blocks = [];
  for (let start = first; start < total; start += length) {
    const stop = Math.min(start + length, total);
    const masks = count(masked.subarray(start, stop));
    if (masks) blocks.push({ start, stop, masks });
  }
  const most = count(masked);
  const steps = settings.steps || most;
  if (steps < blocks.length) {
    const lie = `the masks of prompt 1 lie in ${blocks.length} blocks`;
    throw new RangeError(`steps (${steps}) are too few: ${lie}, and each takes a step`);
  }
  if (steps > most)
    throw new RangeError(`steps (${steps}) are too many: prompt 1 has ${most} masks, and each step writes one`);
  const spare = [steps - blocks.length, Math.max(1, most - blocks.length)];
  let further = 0;
  let before = 0;
  for (const block of blocks) {
    further += block.masks - 1;
    const after = Math.floor((spare[0] * further) / spare[1]);
    block.quotas = quotas(block.masks, 1 + after - before);
    before = after;
  }
  return blocks;
}

/**
 * The progress of a run: the present block, the step within the block, and commits that earlier steps could not make.
 * steps: the greatest number of steps. early: whether a block ends as soon as no position of it is masked.
 * quotas(masks, steps): the commits of every step of a block. running: whether the run has not ended.
 */
export class Schedule {
  #canvas;
  #early;
  #blocks;
  #block = 0;
  #owed = 0;
  steps_in_block = 0;

  constructor(canvas, settings, { early, quotas }) {
    [this.#canvas, this.#early] = [canvas, early];
    this.#blocks = blocksOf(canvas, settings, quotas);
    this.steps = this.#blocks.reduce((sum, block) => sum + block.quotas.length, 0);
  }

  /** Takes over the progress of another schedule of the same blocks. */
  goOnFrom(other) {
    this.#block = other.#block;
    this.#owed = other.#owed;
    this.steps_in_block = other.steps_in_block;
  }

  get running() {
    return this.#block < this.#blocks.length;
  }

  /** Whether this is the last step of the block. It must commit all masked positions of `open`. */
  get closing() {
    return this.steps_in_block === this.steps_of_block - 1;
  }

  get steps_of_block() {
    return this.#blocks[this.#block].quotas.length;
  }

  /** [start, stop] of the present block. Both are the end of the canvas after the last block. */
  get block() {
    const { total } = this.#canvas;
    const { start, stop } = this.#blocks[this.#block] ?? { start: total, stop: total };
    return [start, stop];
  }

  /** [start, stop] of the positions that may be committed: the present block, and positions before it. */
  get open() {
    return [this.#canvas.generated_from, this.block[1]];
  }

  /** The commits of this step, without those that earlier steps could not make. */
  get share() {
    return this.#blocks[this.#block].quotas[this.steps_in_block];
  }

  /** The commits of this step: its share, and the commits that earlier steps could not make. */
  get quota() {
    return this.share + this.#owed;
  }

  /** The number of remaining steps. For a policy that ends blocks early it is unknown, and 1 is returned. */
  get left() {
    if (this.#early) return 1;
    const steps = this.#blocks.slice(this.#block).reduce((sum, block) => sum + block.quotas.length, 0);
    return steps - this.steps_in_block;
  }

  /** Ends the run before its last block is filled. */
  stop() {
    this.#block = this.#blocks.length;
  }

  /** Ends the step. Commits that the step could not make are left to the next step. committed: its commits. */
  advance(committed) {
    this.#owed = Math.max(0, this.quota - committed);
    this.steps_in_block += 1;
    while (this.running) {
      const early = this.#early && !this.#canvas.masked.subarray(...this.open).includes(1);
      if (this.steps_in_block < this.steps_of_block && !early) return;
      this.#block += 1;
      this.steps_in_block = this.#owed = 0;
    }
  }
}

/** The state of Algorithm 1 (lines 1-3): arrays with one value per position, see surelock/decoding/state.py. */
export class State {
  #kept = {};

  constructor(canvas, schedule) {
    Object.assign(this, { canvas, schedule, step: 0, tokens: canvas.tokens, masked: canvas.masked });
    const { total } = canvas;
    [this.locked, this.open] = [new Uint8Array(total), new Uint8Array(total)];
    this.visible = new Int32Array(total);
    for (const name of ["computed_at", "locked_at", "unlocked_at", "probed_at", "committed_at"])
      this[name] = new Int32Array(total).fill(-1);
    this.kl = new Float64Array(total).fill(Number.POSITIVE_INFINITY);
    [this.confidence, this.score] = [0, 1].map(() => new Float64Array(total).fill(Number.NaN));
    this.measures = {};
  }

  /** Takes over the arrays of another state. `goOnFrom` of a run takes over canvas and schedule, too. */
  goOnFrom(other) {
    this.step = other.step;
    for (const [name, values] of Object.entries(other))
      if (ArrayBuffer.isView(values) && !["tokens", "masked"].includes(name)) this[name] = values.slice();
    const copied = (tables) =>
      Object.fromEntries(Object.entries(tables).map(([name, values]) => [name, values.slice()]));
    this.measures = copied(other.measures);
    this.#kept = copied(other.#kept);
  }

  /**
   * Writes tokens. They are visible in no pass yet, since none has had them as input.
   * score: the score of the commits, NaN for an event.
   */
  commit(slots, tokens, score = Number.NaN) {
    this.canvas.commit(slots, tokens);
    put(this.visible, slots, 0);
    put(this.committed_at, slots, this.step);
    put(this.score, slots, score);
  }

  /** Masks slots again. */
  mask(slots) {
    this.canvas.mask(slots);
    put(this.visible, slots, 0);
    put(this.committed_at, slots, -1);
    put(this.score, slots, Number.NaN);
  }

  /** An array [total] of a rule or a policy that is kept from step to step. At first all values are `fill`. */
  kept(name, fill) {
    this.#kept[name] ??= new Float64Array(this.canvas.total).fill(fill);
    return this.#kept[name];
  }

  /** The active slots: those that are not locked. */
  active() {
    return find(this.locked.map((locked) => !locked));
  }

  lock(slots) {
    put(this.locked, slots, 1);
    put(this.locked_at, slots, this.step);
  }

  /** Unlocks slots. They are computed again, and have no earlier posterior to be compared with. */
  unlock(slots) {
    put(this.locked, slots, 0);
    put(this.unlocked_at, slots, this.step);
    put(this.kl, slots, Number.POSITIVE_INFINITY);
  }
}
