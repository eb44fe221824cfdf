// The trace in the browser: a prompt and its lanes. surelock/trace/schema.json describes the format.

import { damaged, TraceError } from "./damage.js";
import { begun, Lane, opening } from "./lane.js";
import { Pieces } from "./pieces.js";
import { Race } from "./race.js";
import { speedOf, timedTogether } from "./timing.js";

export const FORMAT = "surelock-trace";
export const VERSION = 4;
const MAX_CELLS = 2 ** 22;

/** The field `timed_together` of a header, {} if no lanes were timed together. It names the lanes and their machine. */
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

/** A trace: its header, its lanes, and the texts of its tokens. */
export class Trace {
  /** Makes a trace without steps from the first message of a stream: a header and the texts of tokens (pieces). */
  constructor({ header, pieces }) {
    if (header.length * header.steps > MAX_CELLS) throw new TraceError("This trace is too large to be shown.");
    const { length: n, steps, ends = [header.eos_id] } = header;
    Object.assign(this, { header, n, steps, ends: new Set(ends) });
    this.given = Uint8Array.from(opening(header), (token) => token >= 0); // 1 at positions that the prompt fixes
    this.promptLength = this.given.indexOf(0) < 0 ? this.n : this.given.indexOf(0); // positions before the first mask
    this.fills = this.given.includes(1, this.promptLength); // whether the prompt has words after a blank
    // The shown text begins here: with blanks it includes the prompt.
    this.textFrom = this.fills ? 0 : this.promptLength;
    this.pieces = new Pieces(this.ends);
    this.pieces.add(pieces);
    this.lanes = header.lanes.map((decoder) => new Lane(header, decoder));
    this.reference = this.firstReference;
    this.coloured();
    this.race = new Race(this);
    this.timed(header);
  }

  /** Makes the trace of a whole document. reading.js checks documents from elsewhere first. Throws TraceError. */
  static parse(document) {
    const trace = new Trace(document);
    for (const record of document.records) trace.append(record);
    if (!trace.count) throw damaged("it has no steps");
    for (const lane of trace.lanes) lane.source = { document };
    const { view } = document;
    trace.view = view ? { step: view.step, pins: view.pins, byClock: view.by_clock } : null;
    return trace;
  }

  /** The same trace with some of its lanes. Both traces share the lanes, so that new steps appear in both. */
  withLanes(lanes, reference = lanes.includes(this.reference) ? this.reference : lanes[0]) {
    const header = { ...this.header, lanes: lanes.map(({ decoder }) => decoder) };
    const fields = { header, lanes: [...lanes], reference, key: null };
    const trace = Object.assign(Object.create(Trace.prototype), this, fields);
    trace.coloured(this.colours);
    trace.race = new Race(trace, this.race);
    return trace;
  }

  /**
   * Assigns colours to the lanes, numbers from 0. A lane that has a colour keeps it; any other takes the first free
   * one.
   * before: the present colours by lane.
   */
  coloured(before = new Map()) {
    this.colours = new Map(this.lanes.filter((lane) => before.has(lane)).map((lane) => [lane, before.get(lane)]));
    for (const lane of this.lanes) if (!this.colours.has(lane)) this.colours.set(lane, freeNumber(this.colours));
  }

  colourOf(lane) {
    return this.colours.get(lane);
  }

  /** The reference that the trace was made with. Visitors may choose another reference since. */
  get firstReference() {
    return this.lane(this.header.reference) ?? this.lanes[0];
  }

  /**
   * Marks the lanes that a header lists as timed together.
   * A lane may have steps of two races. Its times can be compared with lanes that took turns with it in both races.
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

  /** Records the engine of an added lane if it differs from the header's engine. */
  computed(lane, engine) {
    lane.decoder.engine = engine === this.header.engine ? undefined : engine;
  }

  /** All lanes except the reference. If there is only one lane, that lane. */
  get others() {
    return this.lanes.length > 1 ? this.lanes.filter((lane) => lane !== this.reference) : this.lanes;
  }

  /** The lane that the page's sentences are about. */
  get subject() {
    return this.others[0];
  }

  /**
   * The end of a lane's text after step t: {position, rest}.
   * position: the position of the token that ends the text, n if no token does. A token up to the last word of the
   * prompt never ends the text.
   * rest: the part of this token before the stop text (the header's `stop`), else "".
   */
  endOf(lane, t) {
    const from = this.given.lastIndexOf(1) + 1;
    const tokens = Array.from({ length: this.n - from }, (_, i) => lane.token(from + i, t));
    const end = tokens.findIndex((token) => this.ends.has(token));
    const kept = end < 0 ? tokens : tokens.slice(0, end);
    const { stop } = this.header;
    const at = stop ? this.pieces.text(kept).indexOf(stop) : -1;
    if (at < 0) return { position: from + kept.length, rest: "" };
    const before = (count) => this.pieces.text(kept.slice(0, count));
    let last = 0; // the index of the token in which the stop text begins
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
   * Adds a lane that begins with a copy of the first steps of `of`, by default its parent.
   * The likely tokens of these steps are not copied: they would be taken for likely tokens of later steps.
   */
  branch(decoder, steps, of = this.lane(decoder.parent)) {
    const lane = begun(this.header, decoder, of, steps);
    this.lanes.push(lane);
    this.coloured(this.colours);
    this.header = { ...this.header, lanes: [...this.header.lanes, decoder] };
    return lane;
  }

  /**
   * The same trace, in which copies of their first steps replace some lanes. New steps of a copy appear there alone.
   */
  cutAt(lanes, steps) {
    const copy = (lane) => (lanes.includes(lane) ? begun(this.header, { ...lane.decoder }, lane, steps) : lane);
    const copies = this.lanes.map(copy);
    const cut = this.withLanes(copies, copies[this.lanes.indexOf(this.reference)]);
    cut.coloured(new Map(copies.map((lane, i) => [lane, this.colourOf(this.lanes[i])])));
    return cut;
  }

  /**
   * The trace as a document.
   * @param {Map<string, object[]>} [exact] records by lane id that replace the records of the stream
   * @param {object} [pieces] further texts of tokens
   * @param {?object} [view] the step, pins and clock on show
   */
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
      parent: this.lane(decoder.parent)?.id ?? null, // the parent may have been replaced by another lane
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
   * words: the number of equal words at the beginning. whole: whether both texts end after them.
   * open: whether one of the texts continues with a masked position.
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
    const cut = next.some((text) => /^[\p{L}\p{N}]/u.test(text)); // the last word continues in at least one text
    return { words: words.length - (cut && words.length ? 1 : 0), whole, open: !whole && (mine < 0 || theirs < 0) };
  }

  /**
   * A lane's totals at the cursor's step, compared with the reference after as many steps. For gauges, tables and the
   * summary. Null before the lane's first step.
   */
  totals(lane, step) {
    const t = this.race.reached(lane, step);
    const now = lane.at(t);
    if (!now) return null;
    const fair = lane.endsAt(t) ? Infinity : t; // by the clock, the reference may have fewer steps
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
      spared: now.spared, // steps that were left out because the text had ended, see the setting `stop_at_end`
      seconds: now.totalSeconds,
      against: base?.totalSeconds ?? NaN,
      timed, // whether the lane was timed together with the reference, so that their times can be compared
      activeRatio: now.totalRows / (this.n * (lane.clamp(t) + 1 + now.spared)),
      steps: lane.clamp(t) + 1,
      damage: now.damage ?? null,
      // These two take long compared with a frame, so they are computed only if they are read.
      get speed() {
        return timed ? speedOf(lane.secondsOf(t), reference.secondsOf(until)) : null; // null: too close to tell
      },
      get same() {
        return sameText();
      },
    };
  }
}
