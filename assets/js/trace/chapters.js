// The moments of a race that are worth a stop: each has the cursor's step, a name, and a sentence where it has one of its own.

import { count } from "../dom.js";
import { subject } from "../stage/narrator.js";
import { forkOf } from "./prose.js";

/** [{step, name, text}, ...] in order of step, of the lane that the sentences are about. */
export function chapters(trace) {
  const lane = subject(trace);
  if (!trace.count || !lane.count) return [];
  const found = [firstLock(trace, lane), fork(trace, lane), halfLocked(trace, lane), slowest(trace, lane)];
  const told = found
    .filter(Boolean)
    .map(({ at, ...chapter }) => ({ step: trace.race.cursorAt(lane, at ?? 0), ...chapter }));
  if (!trace.race.live) told.push({ name: "End", step: trace.race.last });
  return told.sort((a, b) => a.step - b.step);
}

function firstLock({ promptLength }, lane) {
  const at = lane.steps.findIndex(({ locked }) => locked.some((p) => p >= promptLength));
  return at < 0 ? null : { at, name: "First lock", stop: true };
}

/** The cursor's step in which a position is written in the later of a lane and the reference. */
export function writtenAt(trace, lane, position) {
  const steps = [lane, trace.reference].map((each) => {
    const at = each.unmaskStep(position, each.count - 1);
    return Number.isFinite(at) ? trace.race.cursorAt(each, at) : 0;
  });
  return Math.max(0, ...steps);
}

function fork(trace, lane) {
  const { reference } = trace;
  const found = lane === reference ? null : forkOf(trace, lane, trace.race.last);
  if (!found) return null;
  const { position, words } = found;
  const [own, other] = words.map((word) => word.replace(/[\p{P}]+$/u, "") || word);
  const text = `the texts part here: “${lane.name}” has “${own}” where “${reference.name}” has “${other}”.`;
  return { step: writtenAt(trace, lane, position), name: "Fork", stop: true, position, text };
}

function halfLocked(_, lane) {
  const at = lane.steps.findIndex(({ lockedCount }) => 2 * lockedCount >= lane.n);
  return at < 0 ? null : { at, name: "Half locked", stop: true, text: "half of all words are locked now." };
}

/** The generated position that took longest to lock. */
function slowest(trace, lane) {
  const last = lane.count - 1;
  let found = null;
  for (let p = trace.promptLength; p < trace.n; p++) {
    const at = lane.lockStep(p, last);
    const took = at - lane.unmaskStep(p, last);
    if (at >= 0 && took > (found?.took ?? 0)) found = { at, took, p };
  }
  if (!found) return null;
  const { at, took, p } = found;
  const text = `of the words that lock, ${trace.word(lane.token(p, last))} took longest: ${count(took, "step")} after it was written.`;
  return { at, name: "Slowest to lock", position: p, text };
}
