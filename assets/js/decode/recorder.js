// Turns the steps of a race into the records of a trace. It mirrors surelock/trace/recorder.py.

import { find, flags, take } from "./arrays.js";
import { TOP_K } from "./race.js";

const FORMAT = "surelock-trace";
const VERSION = 4;
const KL_LOW = 1e-12; // the least KL of the logarithmic scale of bytes 1 to 254
const DECADES = 14;
const KL_INFINITE = 255;
// Of 255; likely tokens are listed again if a token changes, or a probability changes by more.
const TOP_TOLERANCE = 2;

/** The nearest whole number. Of two equally near numbers it is the even one, as in numpy. */
function rounded(x) {
  const up = Math.round(x);
  return up - x === 0.5 && up % 2 ? up - 1 : up;
}

/** A KL in nats as a byte: 0 for a KL below 1e-12, 255 for an infinite KL. */
function klByte(kl) {
  if (!Number.isFinite(kl)) return KL_INFINITE;
  if (kl < KL_LOW) return 0;
  return Math.min(254, Math.max(1, 1 + rounded((Math.log10(kl / KL_LOW) / DECADES) * 253)));
}

/** A probability as a byte. unitByte32 is for probabilities in float32, whose product is rounded to float32 first. */
const unitByte = (p) => rounded(Math.min(1, Math.max(0, p)) * 255);
const unitByte32 = (p) => rounded(Math.fround(Math.min(1, Math.max(0, p)) * 255));

const encoded = (bytes) => btoa(String.fromCharCode(...bytes));

/** The runs [start, length, start, length, ...] of set flags. */
function toRuns(mask) {
  const runs = [];
  for (let i = 0; i < mask.length; i++)
    if (mask[i]) {
      if (i > 0 && mask[i - 1]) runs[runs.length - 1] += 1;
      else runs.push(i, 1);
    }
  return runs;
}

/** The number with the fewest digits that is equal to `value` in float32. */
function short(value) {
  for (let digits = 1; digits < 9; digits++) {
    const number = Number(value.toPrecision(digits));
    if (Math.fround(number) === value) return number;
  }
  return Number(value.toPrecision(9));
}

const finite = (value) => (Number.isFinite(value) ? short(value) : null);

/** A share rounded to four digits, as by Python's `round` except for numbers halfway between two others. */
const shareOf = (share) => Math.round(share * 1e4) / 1e4;

const tokensOf = ({ written = [], unmasked, filled = [] }) =>
  [...written, ...unmasked, ...filled].map(([, token]) => token);

/** The recorder of a race. */
export class Recorder {
  #pieces;
  #records = [];
  #exact = [];
  #guesses = new Map(); // by record
  #tops = {};
  #last = {};
  #sent = new Set();

  /** header: the header of the trace. pieces(ids): returns the pieces of token ids, by id. */
  constructor(header, pieces) {
    [this.header, this.#pieces] = [header, pieces];
    for (const { id } of header.lanes) {
      this.#tops[id] = [];
      this.#last[id] = new Int32Array(header.length * 2 * TOP_K).fill(-1);
    }
  }

  /** The first message of the stream: format, version, header and the pieces of the prompt. */
  start() {
    return { format: FORMAT, version: VERSION, header: this.header, pieces: this.#of(this.#opening()) };
  }

  /**
   * Adds the first steps of a lane of another race. The stream does not send them, since the page has them.
   * lane: the lane of this race that gets them. of: the lane of the other race.
   */
  adopt(lane, other, of, steps) {
    other.#records.forEach((record, i) => {
      if (record.lane !== of || record.step >= steps) return;
      const { commit_error, changed, regret, ...known } = record;
      const adopted = { ...known, lane };
      this.#records.push(adopted);
      this.#exact.push(other.#exact[i]);
      if (other.#guesses.has(record)) this.#guesses.set(adopted, other.#guesses.get(record));
    });
    const tops = other.#tops[of].slice(0, steps);
    this.#tops[lane].push(...tops);
    for (const { rows, ids, probs } of tops)
      rows.forEach((row, i) => {
        const now = [...ids.subarray(i * TOP_K, (i + 1) * TOP_K), ...probs.subarray(i * TOP_K, (i + 1) * TOP_K)];
        this.#last[lane].set(now, row * 2 * TOP_K);
      });
  }

  /** The stream's message for an item of the race: {records, pieces}, or after the last step {errors}. */
  take(turn) {
    if (turn[0]?.commits) return { errors: turn.map((entry) => this.#addErrors(entry)) };
    const records = turn.map(({ lane, step }) => this.record(lane, step));
    const used = records.flatMap((record) => this.#tokensOf(record)).filter((token) => !this.#sent.has(token));
    for (const token of used) this.#sent.add(token);
    const opening = new Set(this.#opening());
    return { records, pieces: this.#of(used.filter((token) => !opening.has(token))) };
  }

  /** Writes a lane's commit errors and regrets into its records. A step's errors are in the order of its `unmasked`. */
  #addErrors({ lane, commits }) {
    const bySteps = new Map(commits.map((commit) => [commit.step, commit]));
    const errors = { lane, commit_error: [], changed: [], regret: [] };
    for (const record of this.#records) {
      if (record.lane !== lane) continue;
      const { position = [], error = [], changed = [], regret = [] } = bySteps.get(record.step) ?? {};
      record.commit_error = Array.from(Float32Array.from(error), finite);
      record.changed = Array.from(position).filter((_, i) => changed[i]);
      record.regret = finite(Math.fround(regret.reduce((sum, less) => sum + less, 0)));
      for (const name of ["commit_error", "changed", "regret"]) errors[name].push(record[name]);
    }
    return errors;
  }

  /** The record of one step in the stream's form: KL and confidence as bytes, no likely tokens. */
  record(lane, step) {
    const rows = find(step.computed);
    const [kl, confidence] = [step.kl, step.confidence].map((values) => Float32Array.from(take(values, rows)));
    const places = (name) => Array.from(find(step[name]));
    const commits = (marked) => Array.from(find(marked), (position) => [position, step.tokens[position]]);
    const tokens = (name) => commits(step[name]);
    const record = {
      lane,
      step: step.index,
      unmasked: tokens("newly_unmasked"),
      locked: places("newly_locked"),
      computed: toRuns(step.computed),
      kl: encoded(Array.from(kl, klByte)),
      confidence: encoded(Array.from(confidence, unitByte32)),
      seconds: Number(step.seconds.toFixed(7)),
      flops: step.flops,
      baseline_flops: step.baseline_flops,
    };
    const rare = { masked: "newly_masked", taken_back: "taken_back", unlocked: "newly_unlocked", probed: "probed" };
    for (const [name, flag] of Object.entries(rare)) {
      const positions = places(flag);
      if (positions.length) record[name] = positions;
    }
    if (step.top_ids) this.#guess(record, step, rows);
    const written = tokens("written");
    if (written.length) record.written = written;
    if (step.shares.length)
      record.shares = step.shares.map(({ position, shares }) => [position, ...Array.from(shares, shareOf)]);
    if (step.ended) Object.assign(record, { filled: commits(step.ended.filled), spared: step.ended.steps });
    this.#keepTop(lane, rows, step);
    this.#exact.push({ kl, confidence });
    this.#records.push(record);
    return record;
  }

  /** [[token id, piece or null, probability], ...] of a position, last computed at or before `step`; [] before that. */
  top(lane, step, position) {
    for (const { rows, ids, probs } of (this.#tops[lane] ?? []).slice(0, step + 1).reverse()) {
      const at = rows.indexOf(position);
      if (at < 0) continue;
      const tokens = Array.from(ids.subarray(at * TOP_K, (at + 1) * TOP_K));
      const pieces = this.#of(tokens);
      const share = (i) => Number((probs[at * TOP_K + i] / 255).toFixed(4));
      return tokens.map((token, i) => [token, pieces[token] ?? null, share(i)]);
    }
    return [];
  }

  /** The document of the trace so far, with KL and confidence as numbers (null: infinite) and likely tokens. */
  document() {
    const seen = {};
    const used = new Set(this.#opening());
    const records = this.#records.map((record, i) => {
      const { lane } = record;
      const entry = { ...record };
      for (const name of ["kl", "confidence"]) entry[name] = Array.from(this.#exact[i][name], finite);
      if (this.#tops[lane].length) {
        seen[lane] = (seen[lane] ?? -1) + 1;
        entry.top = this.#topEntry(this.#tops[lane][seen[lane]]);
        for (const token of entry.top.ids) used.add(token);
      }
      for (const token of this.#tokensOf(record)) used.add(token);
      return entry;
    });
    return { ...this.start(), pieces: this.#of(used), records };
  }

  /** Adds the likeliest tokens of the computed positions that were masked before the step's commits. */
  #guess(record, { masked, newly_unmasked, ended, top_ids }, rows) {
    const width = this.header.model.vocab_size > 2 ** 16 ? 3 : 2;
    const masks = rows.filter((row) => masked[row] || newly_unmasked[row] || ended?.filled[row]);
    const k = top_ids.length / this.header.length;
    const guesses = masks.map((row) => top_ids[row * k]);
    const bytes = Array.from(guesses, (token) => [token & 255, (token >> 8) & 255, token >> 16].slice(0, width));
    record.guess = encoded(bytes.flat());
    this.#guesses.set(record, guesses);
  }

  #tokensOf(record) {
    return [...tokensOf(record), ...(this.#guesses.get(record) ?? [])];
  }

  #of(ids) {
    return this.#pieces([...new Set(ids)]);
  }

  #opening() {
    const { prompt_tokens, mask_id, lists = [] } = this.header;
    return [...prompt_tokens, mask_id, ...lists.flatMap(({ words }) => words.flat())];
  }

  /** Keeps the likely tokens of the rows whose likely tokens changed. */
  #keepTop(lane, rows, { top_ids, top_probs }) {
    if (!top_ids || top_ids.length < this.header.length * TOP_K) return;
    const last = this.#last[lane];
    const ids = [];
    const probs = [];
    const changed = [];
    for (const row of rows) {
      const places = Array.from({ length: TOP_K }, (_, i) => row * TOP_K + i);
      const now = [...places.map((at) => top_ids[at]), ...places.map((at) => unitByte(top_probs[at]))];
      const before = last.subarray(row * 2 * TOP_K, (row + 1) * 2 * TOP_K);
      const moved = (value, i) => Math.abs(value - before[i]) > (i < TOP_K ? 0 : TOP_TOLERANCE);
      if (!now.some(moved)) continue;
      before.set(now);
      changed.push(row);
      ids.push(...now.slice(0, TOP_K));
      probs.push(...now.slice(TOP_K));
    }
    this.#tops[lane].push({ rows: changed, ids: Int32Array.from(ids), probs: Uint8Array.from(probs) });
  }

  #topEntry({ rows, ids, probs }) {
    const listed = new Set(rows);
    const mask = flags(this.header.length, (position) => listed.has(position));
    return { at: toRuns(mask), ids: Array.from(ids), p: encoded(probs) };
  }
}
