// The moments of a race that are worth a stop: each has the cursor's step, a name, and a sentence where it has one of its own.

import { BLANKS, chapterText, firstLock as firstLockText, subject, verdict } from "../stage/narrator.js";
import { forkOf } from "./prose.js";

/** [{step, at, name, text}, ...] in order of step, of the lane that the sentences are about. at: that lane's own step. */
export function chapters(trace) {
  const lane = subject(trace);
  if (!trace.count || !lane.count) return [];
  const found = [firstLock, fork, halfLocked].map((find) => find(trace, lane)).filter(Boolean);
  const all = found.map((chapter) => ({ step: trace.race.cursorAt(lane, chapter.at), ...chapter }));
  if (!trace.race.live) all.push({ name: "End", step: trace.race.last });
  return all.sort((a, b) => a.step - b.step);
}

/** What the narrator tells of a race as far as it has come, in order: the blanks, the chapters that stop it, the
 * verdict once all is measured. */
export function moments(trace, found) {
  const stops = found.filter(({ stop }) => stop);
  const own = stops.map((each) => ({ ...each, sentence: () => chapterText(trace, each) }));
  const end = { step: trace.race.last, name: "Verdict", sentence: () => verdict(trace, trace.race.last) };
  return [
    { step: -1, name: "Blanks", sentence: () => BLANKS },
    ...own,
    ...(trace.complete && !trace.race.live ? [end] : []),
  ];
}

function firstLock(trace, lane) {
  const at = lane.steps.findIndex(({ locked }) => locked.some((p) => !trace.given[p]));
  return at < 0 ? null : { at, name: "First lock", stop: true, text: firstLockText(trace, lane, at) };
}

/** The cursor's step in which a position is written in the later of a lane and the reference. */
export function writtenAt(trace, lane, position) {
  return Math.max(...[lane, trace.reference].map((each) => writtenIn(trace, each, position)));
}

function writtenIn(trace, lane, position) {
  const at = lane.unmaskStep(position, lane.count - 1);
  return Number.isFinite(at) ? Math.max(0, trace.race.cursorAt(lane, at)) : 0;
}

/** Where the texts part: the step after which both words stand. */
function fork(trace, lane) {
  const { reference, race } = trace;
  const found = lane === reference ? null : forkOf(trace, lane, race.last);
  if (!found) return null;
  const { position, words, spans } = found;
  const written = [lane, reference].flatMap((each, i) => spans[i].map((p) => writtenIn(trace, each, p)));
  const step = Math.max(...written);
  const bare = words.map((word) => word.replace(/[\p{P}]+$/u, "") || word);
  const [own, other] = bare[0] === bare[1] ? words : bare;
  const text = `the texts part here: “${lane.name}” has “${own}” where “${reference.name}” has “${other}”.`;
  return { step, at: race.reached(lane, step), name: "Fork", stop: true, position, text };
}

function halfLocked({ n }, lane) {
  const at = lane.steps.findIndex(({ lockedCount }) => 2 * lockedCount >= n);
  if (at < 0) return null;
  const text = `half of all tokens are locked, ${lane.steps[at].lockedCount} of ${n}.`;
  return { at, name: "Half locked", stop: true, text };
}
