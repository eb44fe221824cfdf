// How the lanes of a trace stand beside each other: by the clock, or step by step. By the clock the cursor counts the steps
// of the slowest lane that has one; the others have done more by then, or are done.

import { clocked } from "./timing.js";

export class Race {
  /** before: the race of the trace that this one was made of, if there is one. byClock: how it is shown; live: whether records
   * are still coming; growing: the lanes that they are of. */
  constructor(trace, { byClock = false, live = false, growing } = {}) {
    Object.assign(this, { trace, byClock, live, growing });
  }

  /** The lanes that have a clock beside each other; the others are shown by steps. */
  get clocked() {
    return clocked(this.trace.lanes);
  }

  /** The slowest of them, null where none has a clock. */
  get pacemaker() {
    return this.clocked.reduce((a, b) => (a && a.seconds >= b.seconds ? a : b), null);
  }

  /** The pacemaker of a lane that is shown where its own clock says, when the cursor counts another's steps; else null. */
  #leads(lane) {
    const { byClock, pacemaker, clocked: lanes } = this;
    return byClock && lane !== pacemaker && pacemaker?.seconds > 0 && lanes.includes(lane) ? pacemaker : null;
  }

  /** The step that a lane has done when the cursor is at `step`. */
  reached(lane, step) {
    const pacemaker = step < 0 ? null : this.#leads(lane);
    return pacemaker ? lane.doneBy(pacemaker.at(step).totalSeconds) : lane.clamp(step);
  }

  /** The first step of the cursor at which a lane has done its step t. */
  cursorAt(lane, t) {
    const pacemaker = this.#leads(lane);
    if (!pacemaker) return t;
    const seconds = lane.at(t)?.totalSeconds ?? 0;
    const before = pacemaker.doneBy(seconds);
    return pacemaker.at(before)?.totalSeconds === seconds ? before : Math.min(before + 1, pacemaker.count - 1);
  }

  /** How far the lanes that grow have come: "step 7", or each one's own step where they differ. */
  get done() {
    const { growing = this.trace.lanes } = this;
    const [{ count }] = growing;
    if (growing.every((lane) => lane.count === count)) return `step ${count}`;
    return growing.map((lane) => `step ${lane.count} of “${lane.name}”`).join(", ");
  }

  /** Whose the cursor's steps are, by name: "" where all lanes stand at the same one. */
  get whose() {
    const { byClock, trace, pacemaker } = this;
    return byClock && trace.lanes.length > 1 && pacemaker?.seconds ? `“${pacemaker.name}”` : "";
  }

  get last() {
    const { pacemaker, clocked: lanes, trace } = this;
    if (!this.byClock || !pacemaker?.seconds) return trace.count - 1;
    const byStep = trace.lanes.filter((lane) => !lanes.includes(lane));
    return Math.max(...[pacemaker, ...byStep].map(({ count }) => count)) - 1;
  }

  /** The cursor's step at which the newest that was computed shows, of the lanes that still grow. */
  get front() {
    const growing = this.live && this.growing ? this.growing : this.trace.lanes;
    const { pacemaker, clocked: lanes } = this;
    if (!this.byClock || !pacemaker) return Math.max(...growing.map(({ count }) => count)) - 1;
    const running = growing.filter((lane) => !lane.endsAt(lane.count - 1));
    if (!running.length || !pacemaker.seconds) return this.last;
    return Math.min(...running.map((lane) => (lanes.includes(lane) ? pacemaker.doneBy(lane.seconds) : lane.count - 1)));
  }
}
