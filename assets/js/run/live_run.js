// A run that the page follows: what it has brought, and which of its states it is in.

import { repeats } from "./branching.js";

export class LiveRun {
  /** "running"; "stepping": one step of a paused run is asked for; "aside": it rests for a touch; "over". */
  state = "running";
  note = ""; // of it, a sentence
  lacks = ""; // what a link asked to see and it has not
  behind = false; // whether steps that are on show come again
  #news = false;
  #again = 0; // steps that are on show and came again

  /** opened: {id, handle, trace, pausable, engine, branching: see branchOf, or null, linked: see the page's state}. */
  constructor(opened) {
    Object.assign(this, opened);
  }

  get over() {
    return this.state === "over";
  }

  /** Whether something came since this was read last. */
  readNews() {
    const news = this.#news;
    this.#news = false;
    return news;
  }

  /** Adds what came: {other: a record of a step on show that came again as another one, again: how many steps came again
   * before the first new one, 0 where it is there}. */
  take({ pieces, records }) {
    const { trace } = this;
    trace.pieces.add(pieces);
    if (this.state === "stepping") this.state = "running";
    const known = records.filter(({ lane, step }) => step < trace.lane(lane)?.count);
    const other = known.find((record) => !repeats(trace.lane(record.lane), record));
    if (other) return { other, again: 0 };
    const fresh = records.filter((record) => !known.includes(record));
    for (const record of fresh) trace.append(record);
    this.#news ||= fresh.length > 0;
    this.#again = fresh.length ? 0 : this.#again + 1;
    return { again: this.#again };
  }

  /** Notes what skipping changed, lane by lane. */
  score(lanes) {
    for (const { lane, commit_error: errors, changed, regret } of lanes)
      this.trace.lane(lane)?.score(errors, changed, regret);
    this.#news = true;
  }
}
