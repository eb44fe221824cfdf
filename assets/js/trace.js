// The trace in the browser: the same format as surelock/trace/schema.json, unpacked into typed arrays so that any step draws at once.

import { Pieces } from "./pieces.js";

export const MASKED = 0;
export const ACTIVE = 1;
export const LOCKED = 2;
export const STATES = ["masked", "active", "locked"];
export const LANES = ["baseline", "surelock"];
const VERSION = 1;
const TOP = 5;
const MAX_LENGTH = 8192;
const MAX_CELLS = 2 ** 22;

const KL_OF_BYTE = Float32Array.from({ length: 256 }, (_, b) => 1e-12 * 10 ** ((14 * (b - 1)) / 253));
KL_OF_BYTE[0] = 0;
KL_OF_BYTE[255] = Infinity;

/** A trace that cannot be played; the message is one sentence for a reader. */
export class TraceError extends Error {}
const damaged = (what) => new TraceError(`The trace is damaged: ${what}.`);
const isCount = (n, most) => Number.isInteger(n) && n >= 0 && n < most;

function bytesOf(text) {
  try {
    return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  } catch {
    throw damaged("a row of bytes is not base64");
  }
}

/** [start, length, ...] to positions. */
function fromRuns(runs, n) {
  if (!Array.isArray(runs) || runs.length % 2) throw damaged("a list of positions is incomplete");
  const positions = [];
  for (let i = 0, last = 0; i < runs.length; i += 2) {
    const [start, length] = [runs[i], runs[i + 1]];
    if (!isCount(start, n) || !isCount(length, n + 1) || start < last || start + length > n)
      throw damaged("a record names a position outside the sequence");
    for (let p = start; p < start + length; p++) positions.push(p);
    last = start + length;
  }
  return positions;
}

const quantile = (sorted, q) => {
  if (!sorted.length) return NaN;
  const at = q * (sorted.length - 1);
  const low = Math.floor(at);
  return sorted[low] + (at - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
};

/** One decoder's side of a trace. Step-by-position numbers are at [step * n + position]; NaN where not computed. */
export class Lane {
  constructor(header) {
    const n = header.length;
    const t = header.steps;
    this.n = n;
    this.count = 0;
    this.state = new Uint8Array(n * t);
    this.kl = new Float32Array(n * t).fill(NaN);
    this.confidence = new Float32Array(n * t).fill(NaN);
    this.token = new Int32Array(n).fill(-1);
    this.unmaskStep = new Int32Array(n).fill(2 ** 30);
    header.prompt_tokens.forEach((id, i) => {
      this.token[i] = id;
      this.unmaskStep[i] = -1;
    });
    this.opening = Uint8Array.from({ length: n }, (_, i) => (i < header.prompt_tokens.length ? ACTIVE : MASKED));
    this.steps = []; // {unmasked, locked, unlocked, seconds, flops, baselineFlops, totalSeconds, totalFlops, totalBaseline, lockedCount, low, median, high}
    this.tops = [];
  }

  append(record) {
    const t = this.count;
    const n = this.n;
    const at = t * n;
    if (record.step !== t || at + n > this.state.length)
      throw damaged("its records are not one per step and decoder, in order");
    const row = this.state.subarray(at, at + n);
    row.set(t ? this.state.subarray(at - n, at) : this.opening);
    const unmasked = this.#unmask(record, row, t);
    const locked = this.#set(record.locked, row, LOCKED);
    const unlocked = this.#set(record.unlocked ?? [], row, ACTIVE);
    const rows = fromRuns(record.computed, n);
    this.#values(this.kl, at, rows, record.kl, (b) => KL_OF_BYTE[b], "KL", Infinity);
    this.#values(this.confidence, at, rows, record.confidence, (b) => b / 255, "confidence", NaN);
    if (record.top) this.tops[t] = this.#top(record.top);
    this.steps.push({
      unmasked,
      locked,
      unlocked,
      computed: rows.length,
      ...this.#totals(record, t, rows.length),
      ...this.#band(at, rows),
      lockedCount: this.#count(row, LOCKED),
    });
    this.count++;
  }

  #unmask(record, row, t) {
    if (!Array.isArray(record.unmasked)) throw damaged("a record has no list of unmasked positions");
    return record.unmasked.map((pair) => {
      const [position, token] = Array.isArray(pair) ? pair : [];
      if (!isCount(position, this.n) || !isCount(token, 2 ** 31)) throw damaged("a record unmasks what is no position");
      this.token[position] = token;
      this.unmaskStep[position] = t;
      row[position] = ACTIVE;
      return position;
    });
  }

  #set(positions, row, state) {
    if (!Array.isArray(positions)) throw damaged("a record has no list of locked positions");
    for (const p of positions) {
      if (!isCount(p, this.n)) throw damaged("a record names a position outside the sequence");
      row[p] = state;
    }
    return positions;
  }

  #values(target, at, rows, values, ofByte, what, nothing) {
    const list = typeof values === "string" ? Array.from(bytesOf(values), ofByte) : values;
    if (!Array.isArray(list) || list.length !== rows.length)
      throw damaged(`a step has another number of ${what} values than computed positions`);
    rows.forEach((p, i) => {
      target[at + p] = list[i] === null ? nothing : Number(list[i]);
    });
  }

  #top(top) {
    const rows = fromRuns(top.at, this.n);
    const p = bytesOf(top.p);
    if (!Array.isArray(top.ids) || top.ids.length !== TOP * rows.length || p.length !== top.ids.length)
      throw damaged("a step lists another number of likely tokens than it says");
    return { index: new Map(rows.map((row, i) => [row, i])), ids: Int32Array.from(top.ids), p };
  }

  #totals(record, t, rows) {
    const numbers = [record.seconds, record.flops, record.baseline_flops];
    if (!numbers.every((x) => Number.isFinite(x) && x >= 0)) throw damaged("a time or a FLOPs count is no number");
    const [seconds, flops, baselineFlops] = numbers;
    const before = t ? this.steps[t - 1] : { totalSeconds: 0, totalFlops: 0, totalBaseline: 0, totalRows: 0 };
    return {
      seconds,
      flops,
      baselineFlops,
      totalSeconds: before.totalSeconds + seconds,
      totalFlops: before.totalFlops + flops,
      totalBaseline: before.totalBaseline + baselineFlops,
      totalRows: before.totalRows + rows,
    };
  }

  #band(at, rows) {
    const values = rows
      .map((p) => this.kl[at + p])
      .filter(Number.isFinite)
      .sort((a, b) => a - b);
    return { low: quantile(values, 0.1), median: quantile(values, 0.5), high: quantile(values, 0.9) };
  }

  #count(row, state) {
    let count = 0;
    for (const s of row) if (s === state) count++;
    return count;
  }

  /** Step clamped to what exists; -1 before the first record. */
  clamp(t) {
    return Math.max(-1, Math.min(t, this.count - 1));
  }
  /** States of all positions after step t (t = -1: before the first step). */
  row(t) {
    const at = this.clamp(t) * this.n;
    return at < 0 ? this.opening : this.state.subarray(at, at + this.n);
  }
  /** Tokens after step t, -1 where masked. */
  tokens(t) {
    const s = this.clamp(t);
    return this.token.map((id, i) => (this.unmaskStep[i] <= s ? id : -1));
  }
  at(t) {
    return this.steps[this.clamp(t)];
  }

  /** The last step at or before t in which the position was computed, or -1. */
  lastComputed(position, t) {
    for (let s = this.clamp(t); s >= 0; s--) if (!Number.isNaN(this.confidence[s * this.n + position])) return s;
    return -1;
  }
  /** The step in which the position's present lock began, or -1. */
  lockStep(position, t) {
    let s = this.clamp(t);
    if (s < 0 || this.state[s * this.n + position] !== LOCKED) return -1;
    while (s > 0 && this.state[(s - 1) * this.n + position] === LOCKED) s--;
    return s;
  }
  /** [[id, p], ...] as last listed at or before t, null where the trace holds none. */
  top(position, t) {
    if (!this.tops.length) return null;
    for (let s = this.clamp(t); s >= 0; s--) {
      const i = this.tops[s]?.index.get(position);
      if (i !== undefined)
        return Array.from({ length: TOP }, (_, k) => [
          this.tops[s].ids[i * TOP + k],
          this.tops[s].p[i * TOP + k] / 255,
        ]);
    }
    return [];
  }
}

export class Trace {
  /** From the opening of a stream or a whole document, records excluded. Throws TraceError. */
  constructor(document) {
    if (document?.format !== "surelock-trace") throw new TraceError("This file is not a SureLock trace.");
    if (document.version !== VERSION)
      throw new TraceError(
        `This trace has version ${String(document.version).slice(0, 20)}; this page reads version ${VERSION}.`,
      );
    const header = document.header;
    const usable =
      header &&
      isCount(header.length - 1, MAX_LENGTH) &&
      isCount(header.steps - 1, MAX_LENGTH) &&
      Array.isArray(header.prompt_tokens) &&
      header.prompt_tokens.length <= header.length &&
      header.prompt_tokens.every((id) => isCount(id, 2 ** 31)) &&
      header.length * header.steps <= MAX_CELLS;
    if (!usable) throw damaged("its header gives no usable length, number of steps or prompt");
    if (typeof header.settings !== "object" || !header.settings) throw damaged("its header has no settings");
    this.header = header;
    this.records = []; // as they came, for an export at the stream's precision
    this.n = header.length;
    this.steps = header.steps;
    this.promptLength = header.prompt_tokens.length;
    this.eosId = header.eos_id ?? null;
    this.pieces = new Pieces();
    this.addPieces(document.pieces);
    this.baseline = new Lane(header);
    this.surelock = new Lane(header);
  }

  /** A whole document: unpacked, checked. */
  static parse(document) {
    const trace = new Trace(document);
    if (!Array.isArray(document.records)) throw damaged("it has no records");
    for (const record of document.records) trace.append(record);
    if (!trace.count) throw damaged("it has no steps");
    trace.document = document;
    return trace;
  }

  /** The SureLock sides of two runs of the same length as if they were the two decoders of one. */
  static pair(a, b) {
    const pair = Object.assign(Object.create(Trace.prototype), a, {
      baseline: a.surelock,
      surelock: b.surelock,
      pieces: new Pieces(),
      document: undefined,
      id: undefined,
    });
    pair.pieces.map = new Map([...a.pieces.map, ...b.pieces.map]);
    return pair;
  }

  /** The trace as a document again, at the precision it came with. */
  toDocument() {
    return {
      format: "surelock-trace",
      version: VERSION,
      header: this.header,
      pieces: Object.fromEntries(this.pieces.map),
      records: this.records,
    };
  }

  addPieces(pieces) {
    if (pieces === undefined) return;
    const good = (p) => typeof p === "string" || (Array.isArray(p) && p.every((b) => isCount(b, 256)));
    if (typeof pieces !== "object" || !pieces || !Object.values(pieces).every(good))
      throw damaged("its vocabulary holds what is neither text nor bytes");
    this.pieces.add(pieces);
  }

  append(record) {
    if (!record || !LANES.includes(record.decoder)) throw damaged("a record belongs to no decoder");
    this[record.decoder].append(record);
    this.records.push(record);
  }

  /** Steps that can be shown. */
  get count() {
    return Math.max(this.baseline.count, this.surelock.count);
  }
  get epsilon() {
    const e = this.header.lock?.epsilon;
    if (e === "inf") return Infinity;
    return typeof e === "number" ? e : NaN;
  }

  /** Generated positions unmasked in both, and how many of them hold the same token, after step t. */
  agreement(t) {
    const [a, b] = [this.baseline, this.surelock];
    const [ta, tb] = [a.clamp(t), b.clamp(t)];
    let both = 0;
    let equal = 0;
    for (let i = this.promptLength; i < this.n; i++) {
      if (a.unmaskStep[i] > ta || b.unmaskStep[i] > tb) continue;
      both++;
      if (a.token[i] === b.token[i]) equal++;
    }
    return { both, equal };
  }

  /** Totals after step t for gauges, tables and the summary. */
  totals(t) {
    const [base, sure] = [this.baseline.at(t), this.surelock.at(t)];
    if (!base && !sure) return null;
    return {
      flopsShare: (sure?.totalFlops ?? 0) / (base?.totalFlops || sure?.totalBaseline || 1),
      locked: sure?.lockedCount ?? 0,
      seconds: [base?.totalSeconds ?? 0, sure?.totalSeconds ?? 0],
      activeRatio: (sure?.totalRows ?? 0) / (this.n * Math.max(1, this.surelock.clamp(t) + 1)),
      ...this.agreement(t),
    };
  }
}
