// What a lane's own clock says.

import { count, h, seconds, setText } from "./dom.js";

/** ["1.24 s", "step 41 of 128"]; when a lane is through, ["first: 2.99 s", "128 steps"] of the first of several. */
export function laneClock(trace, lane, step) {
  const t = trace.reached(lane, step);
  const now = lane.at(t);
  if (!now) return ["", ""];
  const time = seconds(now.totalSeconds);
  if (!lane.endsAt(t)) return [time, `step ${t + 1} of ${lane.contestant.settings.steps ?? trace.steps}`];
  const others = trace.lanes.filter((each) => each !== lane);
  const over = (each) => each.endsAt(trace.reached(each, step));
  const first = others.length && others.every((each) => !over(each) || each.seconds > lane.seconds);
  return [`${first ? "first: " : ""}${time}`, count(t + 1, "step")];
}

/** The clock beside a lane's name. */
export class Clock {
  constructor(lane) {
    this.lane = lane;
    this.parts = [h("span"), h("span", { class: "sl-lane-steps" })];
    this.node = h("span", { class: "sl-lane-clock" }, this.parts);
  }

  draw(trace, step) {
    laneClock(trace, this.lane, step).forEach((text, i) => {
      setText(this.parts[i], text);
    });
  }
}
