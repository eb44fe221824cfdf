// What came of a lane, as rows of names and values: for the table of runs, the comparison and the handout.

import { commitError, percent, sameText, seconds } from "../dom.js";
import { facts, judgements } from "./described.js";
import { words } from "./prose.js";

/** What was asked: the prompt's words, or how many tokens it has where it has none. */
export const promptOf = (trace) => trace.header.prompt ?? `${trace.promptLength} token ids`;

/** The text that a lane has written after step t, without what follows its end. */
export const textOf = (trace, lane, t) =>
  words(trace, lane, t)
    .map(({ text }) => text)
    .join("")
    .trim();

const changed = (damage) => (damage ? `${damage.changed} / ${damage.commits} (${commitError(damage)} nats)` : "–");

/** [value, number to sort by]: how many times as fast as the reference, where that can be said. */
function speedOf({ timed, speed }) {
  if (!timed) return ["–", NaN];
  return speed === null ? ["too close to tell", NaN] : [`${speed.toFixed(2)}×`, speed];
}

/** [name, value, number to sort by] of a lane at its end, which is told a time where it has a clock. All FLOPs are those of computing every position; speed and text beside the reference. */
export function results(trace, lane, hasClock = trace.clocked.includes(lane)) {
  const now = trace.totals(lane, trace.count - 1);
  if (!now) return [];
  const alone = lane === trace.reference;
  const { words: shared, whole } = now.same;
  return [
    ["Steps", String(now.steps), now.steps],
    ["Share of all FLOPs", percent(now.everyShare, 1), now.everyShare],
    ["Active ratio", percent(now.activeRatio, 1), now.activeRatio],
    ["Time", ...(hasClock ? [seconds(now.seconds), now.seconds] : ["–", NaN])],
    ["Speed", ...(alone ? ["–", NaN] : speedOf(now))],
    ["Words changed", changed(now.damage), now.damage?.changed ?? NaN],
    ["Text, compared with the reference", alone ? "–" : sameText(now.same), alone || whole ? Infinity : shared],
  ];
}

/** Everything a reader may compare of a lane beside others; hasClock: among them. */
export function everything({ trace, lane }, hasClock) {
  return [
    ["Model", trace.header.model.name],
    ["Prompt", promptOf(trace)],
    ...facts(lane.decoder),
    ...results(trace, lane, hasClock).map(([name, value]) => [name, value]),
    ...judgements(lane),
  ];
}
