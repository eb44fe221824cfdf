// Compares the lanes of a trace by the clock or step by step.
// By the clock, the cursor counts the steps of the slowest lane with a clock, the pacemaker. At the same time the other
// lanes have done more steps, or have ended.

import { clocked } from "./timing.js";

/** Decides which step of every lane is shown at a step of the cursor. It computes no step of a lane. */
export class Race {
  /**
   * @param {Trace} trace
   * @param {object} [shown] options, or the race of the trace from which this trace is derived
   * @param {boolean} [shown.byClock] whether lanes are shown by their clocks
   * @param {boolean} [shown.live] whether records are still coming
   * @param {Lane[]} [shown.growing] the lanes for which records are coming
   */
  constructor(trace, { byClock = false, live = false, growing } = {}) {
    Object.assign(this, { trace, byClock, live, growing });
  }

  /** The lanes whose clocks can be compared. All other lanes are shown step by step. */
  get clocked() {
    return clocked(this.trace.lanes);
  }

  /** The slowest lane with a clock, null if no lane has a clock. */
  get pacemaker() {
    return this.clocked.reduce((a, b) => (a && a.seconds >= b.seconds ? a : b), null);
  }

  /** The pacemaker if a lane is shown by its clock and is not the pacemaker itself, else null. */
  #leads(lane) {
    const { byClock, pacemaker, clocked: lanes } = this;
    return byClock && lane !== pacemaker && pacemaker?.seconds > 0 && lanes.includes(lane) ? pacemaker : null;
  }

  /** The last step that a lane has done when the cursor is at `step`. */
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

  /** The progress of the growing lanes: "step 7", or the step of every lane if the lanes differ. */
  get done() {
    const { growing = this.trace.lanes } = this;
    const [{ count }] = growing;
    if (growing.every((lane) => lane.count === count)) return `step ${count}`;
    return growing.map((lane) => `step ${lane.count} of “${lane.name}”`).join(", ");
  }

  /** The quoted name of the lane whose steps the cursor counts; "" if it counts the steps of all lanes. */
  get whose() {
    const { byClock, trace, pacemaker } = this;
    return byClock && trace.lanes.length > 1 && pacemaker?.seconds ? `“${pacemaker.name}”` : "";
  }

  /** The last step of the cursor. */
  get last() {
    const { pacemaker, clocked: lanes, trace } = this;
    if (!this.byClock || !pacemaker?.seconds) return trace.count - 1;
    const byStep = trace.lanes.filter((lane) => !lanes.includes(lane));
    return Math.max(...[pacemaker, ...byStep].map(({ count }) => count)) - 1;
  }

  /** The cursor's step that shows the newest computed step of the growing lanes. */
  get front() {
    const growing = this.live && this.growing ? this.growing : this.trace.lanes;
    const { pacemaker, clocked: lanes } = this;
    if (!this.byClock || !pacemaker) return Math.max(...growing.map(({ count }) => count)) - 1;
    const running = growing.filter((lane) => !lane.endsAt(lane.count - 1));
    if (!running.length || !pacemaker.seconds) return this.last;
    return Math.min(...running.map((lane) => (lanes.includes(lane) ? pacemaker.doneBy(lane.seconds) : lane.count - 1)));
  }
}
