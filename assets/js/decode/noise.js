// The random numbers of the sampler. There is one stream per (seed, step), over every position of the block. So a
// number depends only on seed, step, position in the block and token; locks never shift it. Positions before the
// block, which only an event can mask again, have another stream, (seed, step, 1). The streams are numpy's PCG64. It
// can jump ahead, so that only the rows that are needed are drawn.

import { join, place } from "./arrays.js";

/**
 * Draws the random numbers of C candidates.
 * keys: the keys of the streams, (seed, step) or (seed, step, 1). lengths: the number of positions of every stream.
 * stream, row: [C], the candidates' streams, and their rows in the streams, ascending.
 * scored: whether a stream begins with one number per position, the scores of candidates.
 */
class Draws {
  constructor(keys, lengths, stream, row, scored) {
    Object.assign(this, { keys, lengths, stream, row, scored });
  }

  /** Uniform numbers in [0, 1), one per candidate. */
  scores() {
    const drawn = this.keys.map((key, i) => new Pcg64(key).fill(new Float64Array(this.lengths[i])));
    return Float64Array.from(this.stream, (stream, i) => drawn[stream][this.row[i]]);
  }

  /**
   * Uniform numbers in [0, 1), one per candidate and token: [candidates, width], flat. candidates: ascending numbers.
   */
  gumbel(candidates, width) {
    const out = new Float64Array(candidates.length * width);
    let current = -1;
    let bits = null;
    let at = 0;
    for (const [i, c] of candidates.entries()) {
      const stream = this.stream[c];
      if (stream !== current) {
        [current, at, bits] = [stream, 0, new Pcg64(this.keys[stream])];
        if (this.scored) bits.advance(this.lengths[stream]);
      }
      bits.advance((this.row[c] - at) * width);
      bits.fill(out.subarray(i * width, (i + 1) * width));
      at = this.row[c] + 1;
    }
    return out;
  }
}

/** The Draws of masked slots in the block or before it. slots: [C], ascending. */
export function draws(canvas, schedule, { seed }, step, slots, scored) {
  const [[start, stop], begin] = [schedule.block, canvas.generated_from];
  const cut = place(slots, start);
  const parts = [
    { row: slots.subarray(0, cut).map((slot) => slot - begin), length: start - begin, key: [seed, step, 1] },
    { row: slots.subarray(cut).map((slot) => slot - start), length: stop - start, key: [seed, step] },
  ].filter(({ row }) => row.length);
  const [keys, lengths, rows] = ["key", "length", "row"].map((name) => parts.map((part) => part[name]));
  const streams = rows.map((row, i) => new Int32Array(row.length).fill(i));
  return new Draws(keys, lengths, join(streams), join(rows), scored);
}

// --- numpy's SeedSequence and PCG64 ---------------------------------------------------------------------------------

const POOL = 4;

/** The first `count` words of 32 bits of numpy's SeedSequence(key). key: whole numbers, or BigInts. */
export function seeded(key, count) {
  const entropy = key.flatMap(words);
  let constant = 0x43b0d7e5;
  const hash = (value) => {
    const mixed = value ^ constant;
    constant = Math.imul(constant, 0x931e8875);
    const product = Math.imul(mixed, constant);
    return product ^ (product >>> 16);
  };
  const mix = (x, y) => {
    const mixed = (Math.imul(0xca01f9dd, x) - Math.imul(0x4973f715, y)) | 0;
    return mixed ^ (mixed >>> 16);
  };
  const pool = Array.from({ length: POOL }, (_, i) => hash(entropy[i] ?? 0));
  for (let from = 0; from < POOL; from++)
    for (let to = 0; to < POOL; to++) if (from !== to) pool[to] = mix(pool[to], hash(pool[from]));
  for (const word of entropy.slice(POOL)) for (let to = 0; to < POOL; to++) pool[to] = mix(pool[to], hash(word));
  constant = 0x8b51f9dd;
  return Uint32Array.from({ length: count }, (_, i) => {
    const mixed = pool[i % POOL] ^ constant;
    constant = Math.imul(constant, 0x58f38ded);
    const product = Math.imul(mixed, constant);
    return product ^ (product >>> 16);
  });
}

/** The 32-bit words of a whole number, the lowest first. */
function words(number) {
  const limbs = [];
  let rest = BigInt(number);
  do {
    limbs.push(Number(rest & 0xffffffffn));
    rest >>= 32n;
  } while (rest);
  return limbs;
}

const MULTIPLIER = new Uint32Array([0x9fccf645, 0x4385df64, 0x1fc65da4, 0x2360ed05]);
const ONE = new Uint32Array([1, 0, 0, 0]);
const ZERO = new Uint32Array(4);
const halves = (limbs) => new Uint16Array(limbs.buffer); // browsers run only on little-endian machines
const STEP = halves(MULTIPLIER);

/** numpy's PCG64(SeedSequence(key)). Its 128 bits are four limbs of 32 bits, the lowest first. */
export class Pcg64 {
  #state;
  #increment;

  constructor(key) {
    const [a, b, c, d, e, f, g, h] = seeded(key, 8);
    this.#increment = new Uint32Array([
      (g << 1) | 1,
      (h << 1) | (g >>> 31),
      (e << 1) | (h >>> 31),
      (f << 1) | (e >>> 31),
    ]);
    this.#state = multiplied(new Uint32Array([c, d, a, b]), halves(ONE), this.#increment);
    multiplied(this.#state, STEP, this.#increment, this.#state);
  }

  /** Fills an array with uniform numbers in [0, 1) of 53 bits. */
  fill(out) {
    const state = this.#state;
    const increment = this.#increment;
    for (let i = 0; i < out.length; i++) {
      multiplied(state, STEP, increment, state);
      let high = state[3] ^ state[1];
      let low = state[2] ^ state[0];
      let turn = state[3] >>> 26;
      if (turn >= 32) {
        [high, low] = [low, high];
        turn -= 32;
      }
      if (turn) [high, low] = [(high >>> turn) | (low << (32 - turn)), (low >>> turn) | (high << (32 - turn))];
      out[i] = ((high >>> 0) * 2 ** 21 + (low >>> 11)) / 2 ** 53;
    }
    return out;
  }

  /** Skips `count` numbers without drawing them. */
  advance(count) {
    let factor = MULTIPLIER.slice();
    let sum = this.#increment.slice();
    for (let left = count; left > 0; left = Math.floor(left / 2)) {
      if (left % 2) multiplied(this.#state, halves(factor), sum, this.#state);
      sum = multiplied(sum, halves(factor), sum);
      factor = multiplied(factor, halves(factor), ZERO);
    }
  }
}

/** a * m + c modulo 2 ** 128. m is split into 16 bits, so that sums of products stay below 2 ** 53. */
function multiplied(a, m, c, out = new Uint32Array(4)) {
  const a0 = a[0];
  const a1 = a[1];
  const a2 = a[2];
  const a3 = a[3];
  let sum = a0 * m[0] + c[0];
  let low = sum & 0xffff;
  sum = Math.floor(sum / 65536) + a0 * m[1];
  out[0] = low | (sum << 16);
  sum = Math.floor(sum / 65536) + a0 * m[2] + a1 * m[0] + c[1];
  low = sum & 0xffff;
  sum = Math.floor(sum / 65536) + a0 * m[3] + a1 * m[1];
  out[1] = low | (sum << 16);
  sum = Math.floor(sum / 65536) + a0 * m[4] + a1 * m[2] + a2 * m[0] + c[2];
  low = sum & 0xffff;
  sum = Math.floor(sum / 65536) + a0 * m[5] + a1 * m[3] + a2 * m[1];
  out[2] = low | (sum << 16);
  sum = Math.floor(sum / 65536) + a0 * m[6] + a1 * m[4] + a2 * m[2] + a3 * m[0] + c[3];
  low = sum & 0xffff;
  sum = Math.floor(sum / 65536) + a0 * m[7] + a1 * m[5] + a2 * m[3] + a3 * m[1];
  out[3] = low | (sum << 16);
  return out;
}
