// What a lane's own clock says.

import { count, seconds } from "./dom.js";

/** "1.24 s, step 41 of 128"; when a lane is through, after how long, and whether it was the first of several. */
export function laneClock(trace, lane, step) {
  const t = trace.reached(lane, step);
  const now = lane.at(t);
  if (!now) return "";
  const time = seconds(now.totalSeconds);
  if (!lane.endsAt(t)) return `${time}, step ${t + 1} of ${lane.contestant.settings.steps ?? trace.steps}`;
  const others = trace.lanes.filter((each) => each !== lane);
  const over = (each) => each.endsAt(trace.reached(each, step));
  const first = others.length && others.every((each) => !over(each) || each.seconds > lane.seconds);
  return `${first ? "first: " : ""}${count(t + 1, "step")} in ${time}`;
}
