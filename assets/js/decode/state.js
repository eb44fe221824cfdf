// What a run knows: its sequence, how far that is, and the state of every position. All that a compute rule and an
// unmask policy may decide by. A browser decodes one prompt at a time: a slot of the library is a position here.

import { count, find, flags, put } from "./arrays.js";

/**
 * A prompt, in which masks may stand, followed by masks. tokens and masked [total] change as the run unmasks.
 * given [total]: the prompt, what is not masked at the start.
 * generated_from: the first mask. given_until: the position behind the last one of `given`.
 * Throws a RangeError without a mask.
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

  /** Goes on where another canvas of the same prompt is. */
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

/** Throws a RangeError unless length, blocks and steps fit together behind a plain prompt. */
function checkBlocks({ gen_length: length, block_length: block, steps }) {
  const blocks = length / (block || length);
  if (block && length % block) throw new RangeError(`block_length (${block}) must divide gen_length (${length})`);
  if (steps > length) throw new RangeError(`steps (${steps}) must be at most gen_length (${length})`);
  if (steps % blocks) throw new RangeError(`steps (${steps}) must be a multiple of the number of blocks (${blocks})`);
}

/** Even shares of the masks for the steps; the first steps share the remainder. */
export const evenQuotas = (masks, steps) =>
  Array.from({ length: steps }, (_, step) => Math.floor(masks / steps) + (step < masks % steps));

/** The blocks of a canvas, {start, stop, quotas}: see `Schedule` of surelock/decoding/state.py. */
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

/** How far a sequence is: the block it fills, the step within it, and commits still owed from earlier steps.
 * steps: the most of the sequence. early: a block ends as soon as none of its positions is masked, not only after its steps.
 * quotas(masks, steps): the commits that the steps of a block owe. running: it has not ended. */
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

  /** Goes on where another schedule of the same blocks is. */
  goOnFrom(other) {
    this.#block = other.#block;
    this.#owed = other.#owed;
    this.steps_in_block = other.steps_in_block;
  }

  get running() {
    return this.#block < this.#blocks.length;
  }

  /** Whether this is the last step of the block, which must commit all that is still masked there. */
  get closing() {
    return this.steps_in_block === this.steps_of_block - 1;
  }

  get steps_of_block() {
    return this.#blocks[this.#block].quotas.length;
  }

  /** [start, stop] of the block that is filled; both the end when all are. */
  get block() {
    const { total } = this.#canvas;
    const { start, stop } = this.#blocks[this.#block] ?? { start: total, stop: total };
    return [start, stop];
  }

  /** [start, stop] of what may be committed: the block, and what is before it. */
  get open() {
    return [this.#canvas.generated_from, this.block[1]];
  }

  /** The commits that this step owes by itself. */
  get share() {
    return this.#blocks[this.#block].quotas[this.steps_in_block];
  }

  /** Positions to commit in this step: its share, and what is owed. */
  get quota() {
    return this.share + this.#owed;
  }

  /** The steps that are left. Of a policy that ends blocks early it is 1: nobody knows. */
  get left() {
    if (this.#early) return 1;
    const steps = this.#blocks.slice(this.#block).reduce((sum, block) => sum + block.quotas.length, 0);
    return steps - this.steps_in_block;
  }

  /** Ends the sequence before its blocks do. */
  stop() {
    this.#block = this.#blocks.length;
  }

  /** Close the step. Commits that selection could not meet carry over to the next. */
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

/** The state of Algorithm 1 (lines 1-3): arrays with a value a position, which mean what surelock/decoding/state.py says. */
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

  /** Goes on where another state is. Its canvas and its schedule do so by themselves. */
  goOnFrom(other) {
    this.step = other.step;
    for (const [name, values] of Object.entries(other))
      if (ArrayBuffer.isView(values) && !["tokens", "masked"].includes(name)) this[name] = values.slice();
    const copied = (tables) =>
      Object.fromEntries(Object.entries(tables).map(([name, values]) => [name, values.slice()]));
    this.measures = copied(other.measures);
    this.#kept = copied(other.#kept);
  }

  /** Writes tokens that no pass has had as input. score: NaN for what an event writes. */
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

  /** An array of a rule or a policy, [total], kept from step to step; `fill` everywhere at first. */
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
