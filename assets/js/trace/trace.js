// The trace in the browser: the format of surelock/trace/schema.json, unpacked into typed arrays so that any step draws
// at once. A trace is a prompt and its lanes; nothing here knows a lane by more than its id.

import { Pieces } from "./pieces.js";
import { clocked, speedOf, timedTogether } from "./timing.js";

// What a cell is follows from three facts: masked or not, computed in this step or not, locked or not.
export const MASKED = 0;
export const ACTIVE = 1;
export const LOCKED = 2;
export const RESTING = 3;
const WAITING = 4;
export const STATES = ["masked", "active", "locked", "resting", "masked, not computed"];
export const isMasked = (state) => state === MASKED || state === WAITING;
export const MOST_LANES = 4;
export const FORMAT = "surelock-trace";
export const VERSION = 3;
const TOP = 5;
const MAX_CELLS = 2 ** 22;

const KL_OF_BYTE = Float32Array.from({ length: 256 }, (_, b) => {
  if (b === 0) return 0;
  return b === 255 ? Infinity : 1e-12 * 10 ** ((14 * (b - 1)) / 253);
});

/** A trace that cannot be played; the message is one sentence for a reader. */
export class TraceError extends Error {}
const damaged = (what) => new TraceError(`The trace is damaged: ${what}.`);

/** The trace of a document. Throws TraceError, whatever is wrong with it. */
export function traceOf(document) {
  try {
    return Trace.parse(document);
  } catch (error) {
    if (error instanceof TraceError) throw error;
    throw damaged("a record lacks some of its parts");
  }
}

function bytesOf(text) {
  let binary;
  try {
    binary = atob(text);
  } catch {
    throw damaged("a row of bytes is not base64");
  }
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** [start, length, ...] to positions. */
function fromRuns(runs, n) {
  if (runs.length % 2) throw damaged("a list of positions is incomplete");
  const positions = [];
  for (let i = 0, last = 0; i < runs.length; i += 2) {
    const start = runs[i];
    const end = start + runs[i + 1];
    if (start < last || end > n) throw damaged("a record names a position outside the sequence");
    for (let p = start; p < end; p++) positions.push(p);
    last = end;
  }
  return positions;
}

const quantile = (sorted, q) => {
  if (!sorted.length) return NaN;
  const at = q * (sorted.length - 1);
  const low = Math.floor(at);
  return sorted[low] + (at - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
};

/** What stands at a position after step t: an entry of a lane's `changes`. */
function standing(lane, position, t) {
  const list = lane.changes[position];
  const s = lane.clamp(t);
  let i = list.length - 1;
  while (list[i][0] > s) i--;
  return list[i];
}

/** One decoder's run of the prompt. `decoder` is what the header says of it. Step-by-position numbers are at [step * n + position]; NaN where not computed. */
export class Lane {
  constructor(header, decoder) {
    this.n = header.length;
    const n = this.n;
    const t = header.steps;
    Object.assign(this, { decoder, id: decoder.id, name: decoder.name, count: 0, records: [], tops: [] });
    this.judged = {}; // what judges said of its text, by their names
    this.timing = null; // the same for all lanes that were timed together
    this.source = null; // where its exact records are: {document, id} or, on the server, {run, id}
    this.state = new Uint8Array(n * t);
    this.kl = new Float32Array(n * t).fill(NaN);
    this.confidence = new Float32Array(n * t).fill(NaN);
    this.seen = new Int32Array(n * t); // the last step up to it in which the position was computed, or -1
    // Per position, what stood there from when: [step, token (-1: masked), step it was unmasked in], the latest last.
    this.changes = Array.from({ length: n }, (_, p) => [[-1, header.prompt_tokens[p] ?? -1, -1]]);
    this.masked = Uint8Array.from({ length: n }, (_, p) => (p < header.prompt_tokens.length ? 0 : 1));
    this.locked = new Uint8Array(n);
    this.opening = this.masked.map((masked) => (masked ? MASKED : ACTIVE));
    this.steps = []; // see append
  }

  append(record) {
    const t = this.count;
    const { n } = this;
    const at = t * n;
    if (record.step !== t || at + n > this.state.length)
      throw damaged("its records are not one per step and lane, in order");
    const masked = this.#checked(record.masked ?? []);
    for (const p of masked) this.#change(p, t, -1);
    const written = this.#tokens(record.written ?? [], t);
    const unlocked = this.#checked(record.unlocked ?? []);
    for (const p of unlocked) this.locked[p] = 0;
    const unmasked = this.#tokens(record.unmasked, t);
    const locked = this.#checked(record.locked);
    for (const p of locked) this.locked[p] = 1;
    const rows = fromRuns(record.computed, n);
    this.#states(at, rows);
    this.#see(t, rows);
    this.#values(this.kl, at, rows, record.kl, (b) => KL_OF_BYTE[b], "KL", Infinity);
    this.#values(this.confidence, at, rows, record.confidence, (b) => b / 255, "confidence", NaN);
    if (record.top) this.tops[t] = this.#top(record.top);
    const counts = { computed: rows.length, lockedCount: this.locked.reduce((sum, x) => sum + x, 0) };
    const totals = this.#totals(record, t, rows.length);
    this.steps.push({ masked, written, unmasked, locked, unlocked, ...counts, ...totals, ...this.#band(at, rows) });
    this.records.push(record); // as it came, for an export at the stream's precision
    this.count++;
    if (record.commit_error) this.#scored(t);
  }

  /** What was measured when the run was over: for each step the commit errors, the positions changed, and the regret. */
  score(errors, changed, regret = []) {
    for (let t = 0; t < this.count; t++) {
      this.records[t] = { ...this.records[t], commit_error: errors[t], changed: changed[t], regret: regret[t] ?? null };
      this.#scored(t);
    }
  }

  /** Adds a step's commit errors to those before, and its regret where all have one. */
  #scored(t) {
    const { unmasked, commit_error: errors, changed = [], regret = null } = this.records[t];
    if (errors.length !== unmasked.length) throw damaged("a step has another number of commit errors than commits");
    const before = t ? this.steps[t - 1].damage : { commits: 0, nats: 0, changed: 0, regret: 0 };
    if (!before) return;
    const commits = before.commits + errors.length;
    const nats = before.nats + errors.reduce((sum, one) => sum + (one ?? 0), 0);
    const mean = nats / Math.max(1, commits); // the commit error
    const lost = regret === null || before.regret === null ? null : before.regret + regret;
    const more = before.changed + this.#checked(changed).length;
    this.steps[t].damage = { commits, nats, mean, changed: more, regret: lost };
  }

  #checked(positions) {
    for (const p of positions) if (p >= this.n) throw damaged("a record names a position outside the sequence");
    return positions;
  }

  /** Tokens that stand at positions from step t; gives the positions. */
  #tokens(pairs, t) {
    const positions = this.#checked(pairs.map(([p]) => p));
    for (const [p, token] of pairs) this.#change(p, t, token);
    return positions;
  }

  #change(p, t, token) {
    const [, before, since] = this.changes[p].at(-1);
    this.changes[p].push([t, token, before < 0 ? t : since]);
    this.masked[p] = token < 0 ? 1 : 0;
  }

  #states(at, rows) {
    const { n, state, masked, locked } = this;
    for (let p = 0; p < n; p++) {
      if (masked[p]) state[at + p] = WAITING;
      else state[at + p] = locked[p] ? LOCKED : RESTING;
    }
    for (const p of rows) {
      if (masked[p]) state[at + p] = MASKED;
      else if (!locked[p]) state[at + p] = ACTIVE;
    }
  }

  #see(t, rows) {
    const at = t * this.n;
    if (t) this.seen.copyWithin(at, at - this.n, at);
    else this.seen.fill(-1, 0, this.n);
    for (const p of rows) this.seen[at + p] = t;
  }

  #values(target, at, rows, values, ofByte, what, nothing) {
    const coded = typeof values === "string";
    const list = coded ? bytesOf(values) : values;
    if (list.length !== rows.length)
      throw damaged(`a step has another number of ${what} values than computed positions`);
    for (let i = 0; i < rows.length; i++) target[at + rows[i]] = coded ? ofByte(list[i]) : (list[i] ?? nothing);
  }

  #top(top) {
    const rows = fromRuns(top.at, this.n);
    const p = bytesOf(top.p);
    if (top.ids.length !== TOP * rows.length || p.length !== top.ids.length)
      throw damaged("a step lists another number of likely tokens than it says");
    return { index: new Map(rows.map((row, i) => [row, i])), ids: Int32Array.from(top.ids), p };
  }

  #totals({ seconds, flops, baseline_flops: baselineFlops }, t, rows) {
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
    const values = Float32Array.from(rows, (p) => this.kl[at + p])
      .filter(Number.isFinite)
      .sort();
    return { low: quantile(values, 0.1), median: quantile(values, 0.5), high: quantile(values, 0.9) };
  }

  /** The same lane under another id and name; it shares everything else, and does not grow. */
  as(id, name) {
    const decoder = { ...this.decoder, id, name };
    return Object.assign(Object.create(Lane.prototype), this, { id, name, decoder });
  }

  /** The largest step-wise KL that locks, NaN where KL locks nothing. */
  get epsilon() {
    const rule = this.decoder.compute.lock ?? this.decoder.compute;
    return rule.epsilon === "inf" ? Infinity : (rule.epsilon ?? NaN);
  }

  /** Whether nothing comes after step t: it was the last that this lane is asked for, or left nothing masked. */
  endsAt(t) {
    const { steps, gen_length: length } = this.decoder.settings;
    return t + 1 >= (steps ?? length ?? this.count) || (t + 1 >= this.count && t >= 0 && !this.masked.includes(1));
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
  at(t) {
    return this.steps[this.clamp(t)];
  }
  /** The last step that was over after so many seconds of this lane's own clock, -1 where none was. */
  doneBy(seconds) {
    return this.steps.findLastIndex(({ totalSeconds }) => totalSeconds <= seconds);
  }
  /** The seconds of each step up to t. */
  secondsOf(t) {
    return this.steps.slice(0, this.clamp(t) + 1).map(({ seconds }) => seconds);
  }
  /** Seconds that it has computed for, of all steps that there are. */
  get seconds() {
    return this.steps.at(-1)?.totalSeconds ?? 0;
  }

  /** The token that stands at a position after step t, -1 where it is masked. */
  token(position, t) {
    return standing(this, position, t)[1];
  }
  /** The step that unmasked what stands there after step t: -1 for the prompt, NaN where it is masked. */
  unmaskStep(position, t) {
    const [, token, since] = standing(this, position, t);
    return token < 0 ? NaN : since;
  }
  /** Tokens after step t, -1 where masked. */
  tokens(t) {
    return Int32Array.from({ length: this.n }, (_, p) => this.token(p, t));
  }

  /** The last step at or before t in which the position was computed, or -1. */
  lastComputed(position, t) {
    const s = this.clamp(t);
    return s < 0 ? -1 : this.seen[s * this.n + position];
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
      if (i === undefined) continue;
      const { ids, p } = this.tops[s];
      return Array.from({ length: TOP }, (_, k) => [ids[i * TOP + k], p[i * TOP + k] / 255]);
    }
    return [];
  }
}

/** A new lane that begins with a copy of another one's first steps. */
function begun(header, decoder, from, steps) {
  const lane = new Lane(header, decoder);
  for (const { top: _, ...record } of from?.records.slice(0, steps) ?? []) lane.append({ ...record, lane: lane.id });
  return lane;
}

/** For a header: which lanes were timed together, and on what machine, where any were. */
function timings(lanes) {
  const races = [...new Set(lanes.map(({ timing }) => timing))].filter(Boolean);
  const groups = races.map((race) => ({
    ...race,
    lanes: lanes.filter(({ timing }) => timing === race).map(({ id }) => id),
  }));
  const together = groups.filter(({ lanes: { length } }) => length > 1);
  return together.length ? { timed_together: together } : {};
}

/** Whether a lane is shown where its own clock says, when the cursor counts another's steps. */
function follows({ byClock, pacemaker, clocked: lanes }, lane) {
  return byClock && lane !== pacemaker && pacemaker?.seconds > 0 && lanes.includes(lane);
}

export class Trace {
  /** From the opening of a stream: a header and pieces. */
  constructor({ header, pieces }) {
    if (header.length * header.steps > MAX_CELLS) throw new TraceError("This trace is too large to be shown.");
    Object.assign(this, { header, n: header.length, steps: header.steps, eosId: header.eos_id ?? null });
    this.promptLength = header.prompt_tokens.length;
    this.pieces = new Pieces();
    this.pieces.add(pieces);
    this.lanes = header.lanes.map((decoder) => new Lane(header, decoder));
    this.reference = this.ownReference;
    this.timed(header);
  }

  /** A whole document of this version, unpacked. Of one from elsewhere its structure is checked first, see reading.js. Throws TraceError. */
  static parse(document) {
    if (document?.format !== FORMAT || document.version !== VERSION) throw damaged("it is no trace of this version");
    const trace = new Trace(document);
    if (new Set(trace.lanes.map(({ id }) => id)).size < trace.lanes.length) throw damaged("two lanes have the same id");
    const named = [document.header.reference, ...document.header.lanes.map(({ parent }) => parent)];
    const timed = (document.header.timed_together ?? []).flatMap(({ lanes }) => lanes);
    if (new Set(timed).size < timed.length) throw damaged("a lane stands in two of its timing groups");
    if ([...named, ...timed].some((id) => id && !trace.lane(id)))
      throw damaged("it speaks of a lane that is not there");
    if (trace.promptLength > trace.n) throw damaged("its prompt is longer than its sequence");
    for (const record of document.records) trace.append(record);
    if (!trace.count) throw damaged("it has no steps");
    for (const lane of trace.lanes) lane.source = { document: document, id: lane.id };
    trace.judge(document.scores ?? {});
    const { view } = document;
    trace.view = view ? { step: view.step, pins: view.pins, byClock: view.by_clock } : null;
    return trace;
  }

  /** Lanes of traces of the same prompt, laid beside each other. Each brings its own pieces; ids are made unique. */
  static of(sides) {
    const [{ trace: first }] = sides;
    const ids = sides.map((_, i) => `lane-${i + 1}`);
    const lanes = sides.map(({ lane, name }, i) => lane.as(ids[i], name));
    const engines = sides.map(({ lane, trace }) => lane.decoder.engine ?? trace.header.engine);
    const engine = engines.every((each) => each === engines[0]) ? engines[0] : undefined;
    lanes.forEach(({ decoder }, i) => {
      Object.assign(decoder, { parent: null, engine: engine ? undefined : engines[i] });
    });
    const steps = Math.max(...sides.map(({ trace }) => trace.steps));
    const header = { ...first.header, engine, steps, lanes: lanes.map(({ decoder }) => decoder) };
    const own = { header, steps, lanes, reference: lanes[0], key: null, growing: undefined };
    const made = Object.assign(Object.create(Trace.prototype), first, own);
    made.pieces = new Pieces();
    for (const { trace } of sides) made.pieces.add(Object.fromEntries(trace.pieces.map));
    return made;
  }

  /** Whether the lanes of two traces can be laid beside each other: the same model, and the same prompt and length. */
  like(other) {
    const same = this.header.model.name === other.header.model.name && this.n === other.n;
    return same && String(this.header.prompt_tokens) === String(other.header.prompt_tokens);
  }

  /** The same trace with some of its lanes; they stay the same lanes, and grow in both. */
  withLanes(lanes, reference = lanes.includes(this.reference) ? this.reference : lanes[0]) {
    const header = { ...this.header, lanes: lanes.map(({ decoder }) => decoder) };
    return Object.assign(Object.create(Trace.prototype), this, { header, lanes: [...lanes], reference, key: null });
  }

  /** The lane that the trace was made to be shown beside. */
  get ownReference() {
    return this.lane(this.header.reference) ?? this.lanes[0];
  }

  /** The same trace beside that lane, whichever was chosen since. */
  asMade() {
    return this.withLanes(this.lanes, this.ownReference);
  }

  /** The lanes of which a header says so were timed together. Steps of two races compare with those of lanes that took turns with them in both. */
  timed({ timed_together: groups = [] }) {
    for (const { lanes: ids, ...where } of groups) {
      const [race, later] = [{ ...where }, new Map([[null, null]])];
      for (const lane of this.lanes.filter(({ id }) => ids.includes(id))) {
        if (!later.has(lane.timing)) later.set(lane.timing, { ...where });
        lane.timing = lane.count ? later.get(lane.timing) : race;
      }
    }
  }

  /** Notes which engine computes a lane that was added, where that is not the header's. */
  computed(lane, engine) {
    lane.decoder.engine = engine === this.header.engine ? undefined : engine;
  }

  /** The lanes beside the reference; of one that is alone, itself. */
  get others() {
    return this.lanes.length > 1 ? this.lanes.filter((lane) => lane !== this.reference) : this.lanes;
  }

  /** The steps that a lane is asked for. */
  stepsOf({ decoder }) {
    return decoder.settings.steps ?? this.steps;
  }

  /** A token as the word that sentences tell of. */
  word(token) {
    return `“${this.pieces.name(token).trim()}”`;
  }

  /** The lanes that have a clock beside each other; the others are shown by steps. */
  get clocked() {
    return clocked(this.lanes);
  }

  lane(id) {
    return this.lanes.find((lane) => lane.id === id);
  }

  /** A new lane that begins as a copy of its parent's first steps, if it has a parent. It holds likely tokens of all its steps or of none: those of the copy would pass for those of later steps. */
  branch(decoder, steps) {
    const lane = begun(this.header, decoder, this.lane(decoder.parent), steps);
    this.lanes.push(lane);
    this.header = { ...this.header, lanes: [...this.header.lanes, decoder] };
    return lane;
  }

  /** The same trace with copies of some lanes' first steps in the lanes' places; they go on in that trace alone. */
  cutAt(lanes, steps) {
    const copy = (lane) => (lanes.includes(lane) ? begun(this.header, { ...lane.decoder }, lane, steps) : lane);
    const copies = this.lanes.map(copy);
    return this.withLanes(copies, copies[this.lanes.indexOf(this.reference)]);
  }

  /** The trace as a document: each lane's records from `exact` (by lane id), or as they came; with what was looked at. */
  toDocument(exact = new Map(), pieces = {}, view = null) {
    const lists = this.lanes.map(({ id, records }) => ({ id, records: exact.get(id) ?? records }));
    const records = [];
    for (let t = 0; t < this.count; t++)
      for (const { id, records: own } of lists) if (own[t]) records.push({ ...own[t], lane: id });
    const lanes = this.lanes.map(({ decoder }) => ({
      ...decoder,
      parent: this.lane(decoder.parent)?.id ?? null, // it may have made room for another lane
    }));
    const { timed_together: _, ...known } = this.header;
    const header = { ...known, lanes, reference: this.reference.id, ...timings(this.lanes) };
    const all = { ...Object.fromEntries(this.pieces.map), ...pieces };
    const scores = {};
    for (const { id, judged } of this.lanes)
      for (const [judge, score] of Object.entries(judged)) scores[judge] = { ...scores[judge], [id]: score };
    const told = Object.keys(scores).length ? { scores } : {};
    const looked = view && { view: { step: view.step, pins: view.pins, by_clock: view.byClock } };
    return { format: FORMAT, version: VERSION, header, pieces: all, records, ...told, ...looked };
  }

  /** What judges said of the texts: by judge, then by lane. */
  judge(scores) {
    for (const [judge, said] of Object.entries(scores))
      for (const [id, score] of Object.entries(said)) {
        const lane = this.lane(id);
        if (lane) lane.judged = { ...lane.judged, [judge]: score };
      }
  }

  addPieces(pieces) {
    this.pieces.add(pieces);
  }

  append(record) {
    const lane = this.lane(record.lane);
    if (!lane) throw damaged("a record belongs to no lane");
    lane.append(record);
  }

  /** Steps that can be shown. */
  get count() {
    return Math.max(...this.lanes.map(({ count }) => count));
  }

  /** Whether nothing more will come. */
  get complete() {
    return this.lanes.every((lane) => lane.endsAt(lane.count - 1));
  }

  /** By the clock the cursor counts the steps of the slowest lane that has one: the others have done more by then, or are done. Null where none has one. */
  get pacemaker() {
    return this.clocked.reduce((a, b) => (a && a.seconds >= b.seconds ? a : b), null);
  }

  /** The step that a lane has done when the cursor is at `step`. */
  reached(lane, step) {
    if (step < 0 || !follows(this, lane)) return lane.clamp(step);
    return lane.doneBy(this.pacemaker.at(step).totalSeconds);
  }

  /** The first step of the cursor at which a lane has done its step t. */
  cursorAt(lane, t) {
    if (!follows(this, lane)) return t;
    const { pacemaker } = this;
    const seconds = lane.at(t)?.totalSeconds ?? 0;
    const before = pacemaker.doneBy(seconds);
    return pacemaker.at(before)?.totalSeconds === seconds ? before : Math.min(before + 1, pacemaker.count - 1);
  }

  /** How far the lanes that grow have come: "step 7", or each one's own step where they differ. */
  get done() {
    const { growing = this.lanes } = this;
    const [{ count }] = growing;
    if (growing.every((lane) => lane.count === count)) return `step ${count}`;
    return growing.map((lane) => `step ${lane.count} of “${lane.name}”`).join(", ");
  }

  /** Whose the cursor's steps are, by name: "" where all lanes stand at the same one. */
  get whose() {
    const { byClock, lanes, pacemaker } = this;
    return byClock && lanes.length > 1 && pacemaker?.seconds ? `“${pacemaker.name}”` : "";
  }

  /** The cursor's last step. */
  get last() {
    const { pacemaker, clocked: lanes } = this;
    if (!this.byClock || !pacemaker?.seconds) return this.count - 1;
    const byStep = this.lanes.filter((lane) => !lanes.includes(lane));
    return Math.max(...[pacemaker, ...byStep].map(({ count }) => count)) - 1;
  }

  /** The cursor's step at which the newest that was computed shows, of the lanes that still grow. */
  get front() {
    const growing = this.live && this.growing ? this.growing : this.lanes;
    const { pacemaker, clocked: lanes } = this;
    if (!this.byClock || !pacemaker) return Math.max(...growing.map(({ count }) => count)) - 1;
    const running = growing.filter((lane) => !lane.endsAt(lane.count - 1));
    if (!running.length || !pacemaker.seconds) return this.last;
    return Math.min(...running.map((lane) => (lanes.includes(lane) ? pacemaker.doneBy(lane.seconds) : lane.count - 1)));
  }

  /** The words that the texts of two lanes at the cursor's step begin with alike, whether nothing else follows in either, and whether it is open how they go on. */
  sameText(a, b, step) {
    const [mineAt, theirsAt] = [this.reached(a, step), this.reached(b, step)];
    const tokens = [];
    let [mine, theirs] = [-1, -1];
    for (let p = this.promptLength; p < this.n; p++) {
      [mine, theirs] = [a.token(p, mineAt), b.token(p, theirsAt)];
      if (mine < 0 || mine !== theirs || mine === this.eosId) break;
      tokens.push(mine);
    }
    const words = this.pieces.text(tokens).split(/\s+/).filter(Boolean);
    const whole = mine >= 0 && mine === theirs;
    const next = [mine, theirs].filter((token) => !whole && token >= 0).map((token) => this.pieces.text([token]));
    const cut = next.some((text) => /^[\p{L}\p{N}]/u.test(text)); // the last word goes on, in one of them at least
    return { words: words.length - (cut && words.length ? 1 : 0), whole, open: mine < 0 || theirs < 0 };
  }

  /** A lane's totals at the cursor's step, beside the reference's after as many of its steps, for gauges, tables and the summary; null before its first. */
  totals(lane, step) {
    const t = this.reached(lane, step);
    const now = lane.at(t);
    if (!now) return null;
    const fair = lane.endsAt(t) ? Infinity : t; // by the clock the reference has done less: its own first steps are what compares
    const until = this.byClock ? fair : step;
    const base = this.reference.at(until);
    const { reference } = this;
    const timed = timedTogether(lane, reference);
    const sameText = () => this.sameText(lane, reference, step);
    return {
      flopsShare: now.totalFlops / (lane === this.reference ? now.totalBaseline : (base?.totalFlops ?? NaN)),
      everyShare: now.totalFlops / now.totalBaseline,
      locked: now.lockedCount,
      seconds: now.totalSeconds,
      against: base?.totalSeconds ?? NaN,
      timed, // with the reference; else no time of it means anything beside the reference's
      activeRatio: now.totalRows / (this.n * (lane.clamp(t) + 1)),
      steps: lane.clamp(t) + 1,
      damage: now.damage ?? null,
      // Whoever needs these asks for them: they take long beside a frame.
      get speed() {
        return timed ? speedOf(lane.secondsOf(t), reference.secondsOf(until)) : null; // or null: too close to tell
      },
      get same() {
        return sameText();
      },
    };
  }
}
