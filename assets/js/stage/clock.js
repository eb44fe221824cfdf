// The clock of a lane, as texts.

import { count, h, seconds, setText } from "../dom.js";
import { speedOf } from "../trace/timing.js";

/**
 * The time and the step of a lane, as texts.
 * While it runs: ["1.24 s", "step 41 of 128"]; "not timed" is in place of the time if its time cannot be compared.
 * At its end: ["2.99 s", "128 steps"], with "first: " before the time of the fastest lane.
 */
export function laneClock(trace, lane, step) {
  const t = trace.race.reached(lane, step);
  const now = lane.at(t);
  if (!now) return ["", ""];
  const { clocked } = trace.race;
  const timed = clocked.includes(lane);
  const time = timed ? seconds(now.totalSeconds) : "not timed";
  if (!lane.endsAt(t)) return [time, `step ${t + 1} of ${lane.most}`];
  const others = timed ? clocked.filter((other) => other !== lane) : [];
  const laneSeconds = lane.secondsOf(Infinity);
  const isBehind = (other) => !other.endsAt(other.count - 1) || speedOf(laneSeconds, other.secondsOf(Infinity)) > 1;
  const first = others.length && others.every(isBehind);
  return [`${first ? "first: " : ""}${time}`, count(t + 1, "step")];
}

/** Shows the clock of a lane. */
export class Clock {
  constructor(lane) {
    this.lane = lane;
    this.parts = [h("span"), h("span.sl-lane-steps")];
    this.node = h("span.sl-lane-clock", this.parts);
  }

  draw(trace, step) {
    laneClock(trace, this.lane, step).forEach((text, i) => {
      setText(this.parts[i], text);
    });
    const bySteps = trace.race.byClock && !trace.race.clocked.includes(this.lane);
    this.node.title = bySteps ? "Not timed together with the others, so shown step by step" : "";
  }
}
