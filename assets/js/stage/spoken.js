// The texts about grids for screen readers.

import { percent, sameText } from "../dom.js";
import { isMasked, LOCKED, STATES } from "../trace/states.js";
import { guessAt } from "./labels.js";

/** The summary of a step: one sentence for every lane except the reference, or for the only lane. "" before step 1. */
export function summary(trace, step) {
  const { reference, others } = trace;
  if (trace.race.reached(reference, step) < 0) return "";
  const sentences = others.map((lane) => {
    const now = trace.totals(lane, step);
    if (!now) return "";
    const { flopsShare, locked, damage, same } = now;
    const beside = lane === reference ? "computing every position" : reference.name;
    const facts = [
      `${locked} of ${trace.n} tokens locked`,
      `${percent(flopsShare)} of the computation of ${beside} so far`,
      damage && `${damage.changed} of ${damage.commits} choices changed by skipping rows`,
      lane !== reference && sameText(same),
    ];
    const at = trace.race.whose && `, step ${trace.race.reached(lane, step) + 1}`;
    return `${lane.name}${at}: ${facts.filter(Boolean).join(", ")}.`;
  });
  const whose = trace.race.whose && ` of ${trace.race.whose}`;
  return `Step ${step + 1} of ${trace.race.last + 1}${whose}. ${sentences.join(" ")}`;
}

/** The name of a grid, which counts the states of its cells after a lane's step t. */
export function gridName(lane, t) {
  const states = lane.row(t);
  const of = (...wanted) => states.reduce((sum, s) => sum + wanted.includes(s), 0);
  return `${lane.name}: ${of(0, 4)} masked, ${of(1)} active, ${of(3)} resting, ${of(2)} locked. Arrow keys move over the cells, Enter opens the menu of one.`;
}

/** The words for a locked position: since when it is locked, or that it locks in this step. */
function lockText(lane, lock, t, state) {
  if (lock < lane.clamp(t)) return `, locked since step ${lock + 1}`;
  return state === LOCKED ? ", locked in this step" : ", locks in this step";
}

/** A line about a cell of a lane at the cursor's step. guesses: see labelsOf. */
export function cellText(trace, lane, cell, step, guesses) {
  const t = trace.race.reached(lane, step);
  const state = lane.row(t)[cell];
  const lock = lane.lockStep(cell, t);
  const since = lock >= 0 ? lockText(lane, lock, t, state) : "";
  const guess = guesses && guessAt(lane, cell, t);
  const now = guess ? `, now ${trace.word(guess[0])} (${percent(guess[1])})` : "";
  if (isMasked(state)) return `Position ${cell}: ${STATES[state]}${now}`;
  const stands = state === LOCKED ? "" : `, ${STATES[state]}`;
  return `Position ${cell}: ${trace.pieces.name(lane.token(cell, t))}${stands}${since}`;
}
