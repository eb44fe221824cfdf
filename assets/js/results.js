// What came of a lane, as rows of names and values: for the table of runs, the comparison and the handout.

import { facts, judgements } from "./described.js";
import { commitError, percent, sameText, seconds } from "./dom.js";
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

/** [name, value, number to sort by] of a lane at its end. FLOPs are of computing every position; speed and text beside the reference. */
export function results(trace, lane) {
  const now = trace.totals(lane, trace.count - 1);
  if (!now) return [];
  const alone = lane === trace.reference;
  const { words: shared, whole } = now.same;
  return [
    ["Steps", String(now.steps), now.steps],
    ["FLOPs of its steps", percent(now.everyShare, 1), now.everyShare],
    ["Active ratio", percent(now.activeRatio, 1), now.activeRatio],
    ["Time", seconds(now.seconds), now.seconds],
    ["Speed", alone ? "–" : `${now.speed.toFixed(2)}×`, alone ? NaN : now.speed],
    ["Top words changed", changed(now.damage), now.damage?.changed ?? NaN],
    ["Beside the reference", alone ? "–" : sameText(now.same), alone || whole ? Infinity : shared],
  ];
}

/** Everything a reader may compare of a lane. */
export function everything({ trace, lane }) {
  return [
    ["Model", trace.header.model.name],
    ["Prompt", promptOf(trace)],
    ...facts(lane.contestant),
    ...results(trace, lane).map(([name, value]) => [name, value]),
    ...judgements(lane),
  ];
}
