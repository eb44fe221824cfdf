// The trace in the browser: the format of surelock/trace/schema.json, a prompt and its lanes.

import { damaged, TraceError } from "./damage.js";
import { begun, Lane, opening } from "./lane.js";
import { Pieces } from "./pieces.js";
import { Race } from "./race.js";
import { speedOf, timedTogether } from "./timing.js";

export const FORMAT = "surelock-trace";
export const VERSION = 4;
const MAX_CELLS = 2 ** 22;

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

/** The lowest number from 0 that no lane has. */
function freeNumber(colours) {
  const taken = [...colours.values()];
  let number = 0;
  while (taken.includes(number)) number++;
  return number;
}

export class Trace {
  /** From the opening of a stream: a header and pieces. */
  constructor({ header, pieces }) {
    if (header.length * header.steps > MAX_CELLS) throw new TraceError("This trace is too large to be shown.");
    const { length: n, steps, ends = [header.eos_id] } = header;
    Object.assign(this, { header, n, steps, ends: new Set(ends) });
    this.given = Uint8Array.from(opening(header), (token) => token >= 0); // the prompt, which may have masks in it
    this.promptLength = this.given.indexOf(0) < 0 ? this.n : this.given.indexOf(0); // what stands before its first mask
    this.fills = this.given.includes(1, this.promptLength); // whether words stand behind a blank
    this.textFrom = this.fills ? 0 : this.promptLength; // a text with blanks is read whole, else what follows the prompt
    this.pieces = new Pieces(this.ends);
    this.pieces.add(pieces);
    this.lanes = header.lanes.map((decoder) => new Lane(header, decoder));
    this.reference = this.firstReference;
    this.coloured();
    this.race = new Race(this);
    this.timed(header);
  }

  /** A whole document, unpacked. One from elsewhere is checked first, see reading.js. Throws TraceError. */
  static parse(document) {
    const trace = new Trace(document);
    for (const record of document.records) trace.append(record);
    if (!trace.count) throw damaged("it has no steps");
    for (const lane of trace.lanes) lane.source = { document };
    const { view } = document;
    trace.view = view ? { step: view.step, pins: view.pins, byClock: view.by_clock } : null;
    return trace;
  }

  /** The same trace with some of its lanes; they stay the same lanes, and grow in both. */
  withLanes(lanes, reference = lanes.includes(this.reference) ? this.reference : lanes[0]) {
    const header = { ...this.header, lanes: lanes.map(({ decoder }) => decoder) };
    const fields = { header, lanes: [...lanes], reference, key: null };
    const trace = Object.assign(Object.create(Trace.prototype), this, fields);
    trace.coloured(this.colours);
    trace.race = new Race(trace, this.race);
    return trace;
  }

  /**
   * Gives the lanes numbers of colours, from 0. A lane that has one keeps it, another takes the first that is free.
   * before: the numbers by lane.
   */
  coloured(before = new Map()) {
    this.colours = new Map(this.lanes.filter((lane) => before.has(lane)).map((lane) => [lane, before.get(lane)]));
    for (const lane of this.lanes) if (!this.colours.has(lane)) this.colours.set(lane, freeNumber(this.colours));
  }

  colourOf(lane) {
    return this.colours.get(lane);
  }

  /** The lane that the trace was made to be shown beside, whichever was chosen since. */
  get firstReference() {
    return this.lane(this.header.reference) ?? this.lanes[0];
  }

  /**
   * Notes which lanes were timed together, as a header says.
   * A lane with steps of two races compares with the lanes that took turns with it in both.
   */
  timed({ timed_together: groups = [] }) {
    for (const { lanes: ids, ...where } of groups) {
      const race = { ...where };
      const later = new Map([[null, null]]);
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

  /** The lane that the page's sentences are about. */
  get subject() {
    return this.others[0];
  }

  /** Where a lane's text ends after step t: {position: of the token that ends it, n where none does; rest: what this token
   * says before a text that ends an answer}. What is given ends nothing, nor does what stands before it. */
  endOf(lane, t) {
    const from = this.given.lastIndexOf(1) + 1;
    const tokens = Array.from({ length: this.n - from }, (_, i) => lane.token(from + i, t));
    const end = tokens.findIndex((token) => this.ends.has(token));
    const kept = end < 0 ? tokens : tokens.slice(0, end);
    const { stop } = this.header;
    const at = stop ? this.pieces.text(kept).indexOf(stop) : -1;
    if (at < 0) return { position: from + kept.length, rest: "" };
    const before = (count) => this.pieces.text(kept.slice(0, count));
    let last = 0; // of the tokens, the one in which the stop begins
    while (before(last + 1).length <= at) last++;
    return { position: from + last, rest: before(last + 1).slice(before(last).length, at) };
  }

  word(token) {
    return `“${this.pieces.name(token).trim()}”`;
  }

  lane(id) {
    return this.lanes.find((lane) => lane.id === id);
  }

  /**
   * Adds a lane that begins as a copy of the first steps of `of`, by default its parent.
   * It holds likely tokens of all its steps or of none: copied ones would pass for those of later steps.
   */
  branch(decoder, steps, of = this.lane(decoder.parent)) {
    const lane = begun(this.header, decoder, of, steps);
    this.lanes.push(lane);
    this.coloured(this.colours);
    this.header = { ...this.header, lanes: [...this.header.lanes, decoder] };
    return lane;
  }

  /** The same trace with copies of some lanes' first steps in the lanes' places; they go on in that trace alone. */
  cutAt(lanes, steps) {
    const copy = (lane) => (lanes.includes(lane) ? begun(this.header, { ...lane.decoder }, lane, steps) : lane);
    const copies = this.lanes.map(copy);
    const cut = this.withLanes(copies, copies[this.lanes.indexOf(this.reference)]);
    cut.coloured(new Map(copies.map((lane, i) => [lane, this.colourOf(this.lanes[i])])));
    return cut;
  }

  /** The trace as a document, with what was looked at. A lane's records are from `exact` (by lane id), or as they came. */
  toDocument(exact = new Map(), pieces = {}, view = null) {
    const lists = this.lanes.map(({ id, records }) => ({ id, records: exact.get(id) ?? records }));
    const records = [];
    for (let t = 0; t < this.count; t++)
      for (const { id, records: laneRecords } of lists) {
        const record = laneRecords[t];
        if (record) records.push({ ...record, lane: id });
      }
    const lanes = this.lanes.map(({ decoder }) => ({
      ...decoder,
      parent: this.lane(decoder.parent)?.id ?? null, // it may have made room for another lane
    }));
    const { timed_together: _, ...known } = this.header;
    const header = { ...known, lanes, reference: this.reference.id, ...timings(this.lanes) };
    const all = { ...Object.fromEntries(this.pieces.map), ...pieces };
    const looked = view && { view: { step: view.step, pins: view.pins, by_clock: view.byClock } };
    return { format: FORMAT, version: VERSION, header, pieces: all, records, ...looked };
  }

  append(record) {
    const lane = this.lane(record?.lane);
    if (!lane) throw damaged("a record belongs to no lane");
    lane.append(record);
  }

  get count() {
    return Math.max(...this.lanes.map(({ count }) => count));
  }

  get complete() {
    return this.lanes.every((lane) => lane.endsAt(lane.count - 1));
  }

  /**
   * How far the texts of two lanes agree at the cursor's step: {words, whole, open}.
   * words: how many words they begin with alike. whole: whether nothing else follows in either text.
   * open: whether what follows is still to be written.
   */
  sameText(a, b, step) {
    const [mineAt, theirsAt] = [a, b].map((lane) => this.race.reached(lane, step));
    const mineEnd = this.endOf(a, mineAt);
    const theirsEnd = this.endOf(b, theirsAt);
    const end = Math.min(mineEnd.position, theirsEnd.position);
    const tokens = [];
    let mine = -1;
    let theirs = -1;
    for (let p = this.textFrom; p < this.n; p++) {
      [mine, theirs] = [a.token(p, mineAt), b.token(p, theirsAt)];
      if (p === end || mine < 0 || mine !== theirs) break;
      tokens.push(mine);
    }
    const words = this.pieces.text(tokens).split(/\s+/).filter(Boolean);
    const isAtEnd = this.textFrom < this.n && this.textFrom + tokens.length === end;
    const whole = isAtEnd && mineEnd.position === theirsEnd.position && mineEnd.rest === theirsEnd.rest;
    const next = [mine, theirs].filter((token) => !whole && token >= 0).map((token) => this.pieces.text([token]));
    const cut = next.some((text) => /^[\p{L}\p{N}]/u.test(text)); // the last word goes on, in one of them at least
    return { words: words.length - (cut && words.length ? 1 : 0), whole, open: !whole && (mine < 0 || theirs < 0) };
  }

  /**
   * A lane's totals at the cursor's step, beside the reference's after as many steps; null before the lane's first step.
   * For gauges, tables and the summary.
   */
  totals(lane, step) {
    const t = this.race.reached(lane, step);
    const now = lane.at(t);
    if (!now) return null;
    const fair = lane.endsAt(t) ? Infinity : t; // by the clock the reference may have done fewer steps
    const until = this.race.byClock ? fair : step;
    const base = this.reference.at(until);
    const { reference } = this;
    const timed = timedTogether(lane, reference);
    const sameText = () => this.sameText(lane, reference, step);
    return {
      flopsShare: now.totalFlops / (lane === this.reference ? now.totalBaseline : (base?.totalFlops ?? NaN)),
      everyShare: now.totalFlops / now.totalBaseline,
      locked: now.lockedCount,
      takenBack: now.takenBack,
      spared: now.spared, // steps that a text that was over left out, see `stop_at_end`
      seconds: now.totalSeconds,
      against: base?.totalSeconds ?? NaN,
      timed, // with the reference; else no time of it means anything beside the reference's
      activeRatio: now.totalRows / (this.n * (lane.clamp(t) + 1 + now.spared)),
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
