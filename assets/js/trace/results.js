// What came of a lane, as rows of names and values: for the handout.

import { percent, sameText, seconds, short } from "../dom.js";
import { facts } from "./described.js";
import { promptOf } from "./prose.js";

const changed = (damage) => (damage ? `${damage.changed} / ${damage.commits} (${short(damage.mean)} nats)` : "–");

/** How many times as fast as the reference, where that can be said. */
function speedOf({ timed, speed }) {
  if (!timed) return "–";
  return speed === null ? "no difference to be seen (one run each)" : `${speed.toFixed(2)}×`;
}

/** [[name, value], ...] of a lane at its end. All FLOPs are those of computing every position; speed and text beside the
 * reference. */
export function results(trace, lane) {
  const now = trace.totals(lane, trace.count - 1);
  if (!now) return [];
  const alone = lane === trace.reference;
  return [
    ["Steps", String(now.steps)],
    ["Share of all FLOPs", percent(now.everyShare, 1)],
    ["Active ratio", percent(now.activeRatio, 1)],
    ["Time", trace.race.clocked.includes(lane) ? seconds(now.seconds) : "–"],
    ["Speed", alone ? "–" : speedOf(now)],
    ["Choices changed by skipping rows", changed(now.damage)],
    ["Text, compared with the reference", alone ? "–" : sameText(now.same)],
  ];
}

export function everything(trace, lane) {
  const asked = [
    ["Model", trace.header.model.name],
    ["Prompt", promptOf(trace)],
  ];
  return [...asked, ...facts(lane.decoder), ...results(trace, lane)];
}
