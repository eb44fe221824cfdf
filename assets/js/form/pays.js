// Whether leaving out rows has paid here, from what the last run has shown. Nothing is measured for it.

import { h, setText } from "../dom.js";
import { page } from "../run/state.js";
import { speedOf, timedTogether } from "../trace/timing.js";

const isWhole = (lane) => lane.count > 0 && lane.endsAt(lane.count - 1);

/** How many times as fast as every row the lanes of a run were that took turns with it; "" where it had none. */
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

/** The line of the settings that says so, once a run has ended. */
export function paysLine() {
  const line = h("p.sl-pays");
  page.follow(["ended"], ({ ended }) => setText(line, ended ? paysText(ended) : ""));
  return line;
}
