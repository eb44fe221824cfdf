// A line that says whether leaving out rows saved time in the last run. Nothing is measured for this line.

import { h, setText } from "../dom.js";
import { page } from "../run/state.js";
import { speedOf, timedTogether } from "../trace/timing.js";

const isWhole = (lane) => lane.count > 0 && lane.endsAt(lane.count - 1);

/** A sentence on the speeds of lanes, compared with the lane that computes every row; "" if nothing can be compared. */
export function paysText({ lanes, n, promptLength }) {
  const every = lanes.find(({ decoder }) => decoder.compute.kind === "everything");
  if (!every || !isWhole(every)) return "";
  const others = lanes.filter((lane) => lane !== every && isWhole(lane) && timedTogether(lane, every));
  if (!others.length) return "";
  const said = others.map((lane) => {
    const speed = speedOf(lane.secondsOf(Infinity), every.secondsOf(Infinity));
    return `“${lane.name}” ${speed === null ? "no faster and no slower" : `${speed.toFixed(1)} times as fast`}`;
  });
  return `In the last run (${n - promptLength} tokens), beside every row: ${said.join(", ")}.`;
}

/** Makes the line, which is empty before a run has ended. */
export function paysLine() {
  const line = h("p.sl-pays");
  page.follow(["ended"], ({ ended }) => setText(line, ended ? paysText(ended) : ""));
  return line;
}
