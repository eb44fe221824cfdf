// What a run knows: the sequences on one flat axis, how far each is, and the state of every position. All that a
// compute rule and an unmask policy may decide by. Padding exists only where a step is shown.

import { find, place, put, take } from "./arrays.js";

/** Prompts followed by masks. All arrays are flat, over `total` slots: the sequences' positions, one after another.
 * lengths, starts, generated_from [B]. sequence, position, is_prompt [total]: what a slot is. tokens and masked change
 * as the run unmasks. */
export class Canvas {
  #cells;
  #size;

  constructor(prompts, { gen_length }, mask_id, pad_id) {
    Object.assign(this, { mask_id, pad_id, batch: prompts.length });
    this.lengths = Int32Array.from(prompts, (prompt) => prompt.length + gen_length);
    this.total = this.lengths.reduce((sum, length) => sum + length, 0);
    let next = 0;
    this.starts = this.lengths.map((length) => {
      next += length;
      return next - length;
    });
    this.generated_from = this.starts.map((start, b) => start + prompts[b].length);
    for (const name of ["sequence", "position", "tokens"]) this[name] = new Int32Array(this.total);
    for (const name of ["is_prompt", "masked"]) this[name] = new Uint8Array(this.total);
    const width = Math.max(...this.lengths);
    this.#size = this.batch * width;
    this.#cells = new Int32Array(this.total);
    prompts.forEach((prompt, b) => {
      for (let i = 0; i < this.lengths[b]; i++) {
        const slot = this.starts[b] + i;
        const masked = i >= prompt.length;
        [this.sequence[slot], this.position[slot], this.tokens[slot]] = [b, i, masked ? mask_id : prompt[i]];
        [this.is_prompt[slot], this.masked[slot]] = [!masked, masked];
        this.#cells[slot] = (b + 1) * width - this.lengths[b] + i;
      }
    });
  }

  /** [start, stop] of the slots of sequence b. */
  slotsOf(b) {
    return [this.starts[b], this.starts[b] + this.lengths[b]];
  }

  /** The slot of a sequence's position. */
  slot(b, position) {
    return this.starts[b] + position;
  }

  commit(slots, tokens) {
    put(this.tokens, slots, tokens);
    put(this.masked, slots, 0);
  }

  mask(slots) {
    put(this.tokens, slots, this.mask_id);
    put(this.masked, slots, 1);
  }

  /** [start, stop] of each sequence's part of ascending `slots`. */
  split(slots) {
    const edges = [...Array.from(this.starts), this.total].map((edge) => place(slots, edge));
    return edges.slice(1).map((stop, b) => [edges[b], stop]);
  }

  /** Rows of each sequence among `slots`. */
  counts(slots) {
    return this.split(slots).map(([start, stop]) => stop - start);
  }

  /** [B, N], left-padded: 1 at the slots of all lists. */
  flags(...lists) {
    const marked = new Uint8Array(this.#size);
    for (const slots of lists) put(marked, take(this.#cells, slots), 1);
    return marked;
  }

  /** Values of `slots` as a left-padded table [B, N, width], `fill` at pads and everywhere else. */
  grid(values, fill, slots = null, width = 1) {
    const out = new values.constructor(this.#size * width).fill(fill);
    const count = slots === null ? this.total : slots.length;
    for (let i = 0; i < count; i++) {
      const cell = this.#cells[slots === null ? i : slots[i]];
      for (let k = 0; k < width; k++) out[cell * width + k] = values[i * width + k];
    }
    return out;
  }
}

/** How far each sequence is: the block it fills, the step within it, and commits still owed from earlier steps.
 * early: a block ends as soon as none of its positions is masked, not only after its steps. running: the sequences that
 * have not ended. closing: this is the last step of its block, which must commit all that is still masked there. */
export class Schedule {
  #canvas;
  #early;
  #length;
  #blocks;
  #steps;
  #block;
  #owed;

  constructor(canvas, settings, early) {
    [this.#canvas, this.#early] = [canvas, early];
    this.#length = settings.block_length || settings.gen_length;
    this.#blocks = settings.gen_length / this.#length;
    this.#steps = Math.floor(settings.totalSteps / this.#blocks);
    [this.#block, this.#owed, this.steps_in_block] = [0, 0, 0].map(() => new Int32Array(canvas.batch));
    this.running = new Uint8Array(canvas.batch).fill(1);
    this.closing = new Uint8Array(canvas.batch).fill(this.#steps === 1);
  }

  /** [start, stop] of the slots of the block that sequence b fills. */
  block(b) {
    const start = this.#canvas.generated_from[b] + this.#block[b] * this.#length;
    return [start, start + this.#length];
  }

  /** [start, stop] of the slots whose masks sequence b may commit: its block, and what is before it. */
  open(b) {
    return [this.#canvas.generated_from[b], this.block(b)[1]];
  }

  /** Positions of this step by an even share of the block's, the remainder in the first steps. */
  share(b) {
    const share = Math.floor(this.#length / this.#steps);
    return share + (this.steps_in_block[b] < this.#length % this.#steps);
  }

  /** Positions to commit in this step: its share, and what is owed. */
  quota(b) {
    return this.share(b) + this.#owed[b];
  }

  /** Close the step of sequence b. Commits that selection could not meet carry over to the next. */
  advance(b, committed) {
    this.#owed[b] = Math.max(0, this.quota(b) - committed);
    this.steps_in_block[b] += 1;
    const early = this.#early && !this.#canvas.masked.subarray(...this.open(b)).includes(1);
    if (this.steps_in_block[b] === this.#steps || early) {
      this.#block[b] += 1;
      this.steps_in_block[b] = this.#owed[b] = 0;
      this.running[b] = this.#block[b] < this.#blocks;
    }
    this.closing[b] = this.steps_in_block[b] === this.#steps - 1;
  }
}

/** The state of Algorithm 1 (lines 1-3) for a batch. Arrays are flat, one value for each of the canvas' slots; they
 * mean what those of surelock/decoding/state.py do. */
export class State {
  #kept = {};

  constructor(canvas, schedule) {
    Object.assign(this, { canvas, schedule, step: 0, tokens: canvas.tokens, masked: canvas.masked });
    const { total } = canvas;
    [this.locked, this.alive, this.open] = [0, 1, 0].map((fill) => new Uint8Array(total).fill(fill));
    this.visible = new Int32Array(total);
    for (const name of ["computed_at", "locked_at", "unlocked_at", "probed_at"])
      this[name] = new Int32Array(total).fill(-1);
    this.kl = new Float64Array(total).fill(Number.POSITIVE_INFINITY);
    this.confidence = new Float64Array(total).fill(Number.NaN);
  }

  split(slots) {
    return this.canvas.split(slots);
  }

  /** A rule's or a policy's own array, [total], kept from step to step; `fill` everywhere at first. */
  kept(name, fill) {
    this.#kept[name] ??= new Float64Array(this.canvas.total).fill(fill);
    return this.#kept[name];
  }

  /** The slots that a step may compute without probing: not locked, of sequences that have not ended. */
  active() {
    return find(this.alive.map((alive, slot) => alive && !this.locked[slot]));
  }

  /** Lock `slots`: they are no longer computed. */
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
