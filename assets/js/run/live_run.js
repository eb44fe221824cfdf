// A run that the page follows, with its state.

import { repeats } from "./branching.js";

/** The followed run. */
export class LiveRun {
  /** "running"; "stepping": one step of a paused run is requested; "aside": paused for a touch; "over". */
  state = "running";
  note = ""; // a sentence about the run
  lacks = ""; // a sentence about the parts of a link's view that the run does not have
  behind = false; // whether steps on show are being sent again
  #news = false;
  #again = 0; // the number of steps on show that were sent again

  /**
   * opened: {id, handle, trace, pausable, engine, branching, linked}; branching: see branchOf; linked: see
   * VisitState.
   */
  constructor(opened) {
    Object.assign(this, opened);
  }

  get over() {
    return this.state === "over";
  }

  /** Whether records have come since the last call. */
  readNews() {
    const news = this.#news;
    this.#news = false;
    return news;
  }

  /**
   * Adds records to the trace. Returns {other, again}.
   * other: a record of a step on show that was sent again with other decisions, if there is one.
   * again: the number of steps that were sent again so far, 0 once a new step has come.
   */
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

  /** Adds the commit errors of lanes. */
  score(lanes) {
    for (const { lane, commit_error: errors, changed, regret } of lanes)
      this.trace.lane(lane)?.score(errors, changed, regret);
    this.#news = true;
  }
}
