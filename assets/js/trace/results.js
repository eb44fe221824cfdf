// The results of a lane as rows of names and values, for the handout.

import { percent, sameText, seconds, short } from "../dom.js";
import { facts } from "./described.js";
import { promptOf } from "./prose.js";

const changed = (damage) => (damage ? `${damage.changed} / ${damage.commits} (${short(damage.mean)} nats)` : "–");

/** The speed relative to the reference, or why it is unknown. */
function speedOf({ timed, speed }) {
  if (!timed) return "–";
  return speed === null ? "no difference to be seen (one run each)" : `${speed.toFixed(2)}×`;
}

/**
 * [[name, value], ...]: the results of a lane at its end.
 * The share of all FLOPs is relative to computing every position. Speed and text are compared with the reference.
 */
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

/** [[name, value], ...]: model, prompt, settings and results of a lane. */
export function everything(trace, lane) {
  const asked = [
    ["Model", trace.header.model.name],
    ["Prompt", promptOf(trace)],
  ];
  return [...asked, ...facts(lane.decoder), ...results(trace, lane)];
}
