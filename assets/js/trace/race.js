// How the lanes of a trace stand beside each other: by the clock, or step by step.
// By the clock, the cursor counts the steps of the slowest lane that has a clock.
// The other lanes have done more steps by then, or have ended.

import { clocked } from "./timing.js";

/** Says which step of every lane is shown at a step of the cursor, by the lanes' clocks or step by step; it runs nothing. */
export class Race {
  /**
   * The second argument may be the race of the trace that this one is derived from.
   * @param {Trace} trace
   * @param {object} [shown]
   * @param {boolean} [shown.byClock] whether lanes are shown by their clocks
   * @param {boolean} [shown.live] whether records are still coming
   * @param {Lane[]} [shown.growing] the lanes of those records
   */
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

  /** The pacemaker, where the lane is shown by its clock and the cursor counts another lane's steps; else null. */
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

  /** How far the lanes that grow have come: "step 7", or a step for every lane where they differ. */
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
