// What if, before the server knows of it: the trace that shows a new contestant beside those that stay.

import { MOST_LANES } from "./trace.js";

/** A contestant's events up to a new one. What was done later goes, and what was done to its place in its own step. */
export const withEvent = (events, event) => [
  ...events.filter(({ step, position }) => step < event.step || (step === event.step && position !== event.position)),
  event,
];

/** An id that no lane of a trace has, nor any that one of them came from. */
function freeId({ lanes }) {
  const taken = new Set(lanes.flatMap(({ contestant: { id, parent } }) => [id, parent]));
  let number = 1;
  while (taken.has(`what-if-${number}`)) number++;
  return `what-if-${number}`;
}

/** The trace with room for one lane more: where four race, the first that is neither the parent nor the reference goes. */
function roomFor(trace, parent) {
  const { lanes, reference } = trace;
  const gone = lanes.length < MOST_LANES ? null : lanes.find((lane) => lane !== parent && lane !== reference);
  return trace.withLanes(lanes.filter((lane) => lane !== gone));
}

/** A contestant that is `parent` with something changed from a step on: {trace: where it is shown, child: its lane, from}. */
export function branchOf(trace, parent, changed, from, name) {
  const shown = roomFor(trace, parent);
  const child = shown.branch({ ...parent.contestant, parent: parent.id, ...changed, id: freeId(trace), name }, from);
  return { trace: shown, child, from };
}

/** The cursor's last step before a branch goes its own way; -1 where that is its first. */
export const cursorBefore = ({ trace, child, from }) => (from ? trace.cursorAt(child, from - 1) : -1);
