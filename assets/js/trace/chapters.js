// The chapters of a race: moments at which it is worth stopping. stage/narrator.js has the sentences about them.

import { forkOf } from "./prose.js";

/**
 * The chapters of the lane that the sentences are about: [{step, at, name, stop}, ...], in order of `step`.
 * step: the cursor's step. at: the lane's step. stop: whether the race stops there for a sentence.
 * The chapter of a fork also has the position of the fork and the words of both lanes.
 */
export function chapters(trace) {
  const lane = trace.subject;
  if (!trace.count || !lane.count) return [];
  const stops = [firstLock, fork, halfLocked].map((find) => find(trace, lane)).filter(Boolean);
  const all = stops.map((chapter) => ({ step: trace.race.cursorAt(lane, chapter.at), ...chapter }));
  if (!trace.race.live) all.push({ name: "End", step: trace.race.last });
  return all.sort((a, b) => a.step - b.step);
}

function firstLock(trace, lane) {
  const at = lane.steps.findIndex(({ locked }) => locked.some((p) => !trace.given[p]));
  return at < 0 ? null : { at, name: "First lock", stop: true };
}

/** The cursor's step at which a position is written both in a lane and in the reference. */
export function writtenAt(trace, lane, position) {
  return Math.max(writtenIn(trace, lane, position), writtenIn(trace, trace.reference, position));
}

function writtenIn(trace, lane, position) {
  const at = lane.unmaskStep(position, lane.count - 1);
  return Number.isFinite(at) ? Math.max(0, trace.race.cursorAt(lane, at)) : 0;
}

/** The chapter of the fork, the first difference of the texts: at the step after which both words are written. */
function fork(trace, lane) {
  const { reference, race } = trace;
  if (lane === reference) return null;
  const parting = forkOf(trace, lane, race.last);
  if (!parting) return null;
  const { position, words, spans } = parting;
  const [laneSpan, referenceSpan] = spans;
  const laneSteps = laneSpan.map((p) => writtenIn(trace, lane, p));
  const referenceSteps = referenceSpan.map((p) => writtenIn(trace, reference, p));
  const step = Math.max(...laneSteps, ...referenceSteps);
  return { step, at: race.reached(lane, step), name: "Fork", stop: true, position, words };
}

function halfLocked({ n }, lane) {
  const at = lane.steps.findIndex(({ lockedCount }) => 2 * lockedCount >= n);
  return at < 0 ? null : { at, name: "Half locked", stop: true };
}
