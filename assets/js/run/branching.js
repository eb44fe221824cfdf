// Branches, before a server knows of them: the trace that shows a new lane beside those that stay.

import { MOST_LANES } from "../trace/states.js";

/** An id that no lane of a trace has, nor any that one of them came from. */
export function freeId({ lanes }) {
  const taken = new Set(lanes.flatMap(({ decoder: { id, parent } }) => [id, parent]));
  let number = 1;
  while (taken.has(`what-if-${number}`)) number++;
  return `what-if-${number}`;
}

/** The lanes that one more could replace: none where there is room for it, else all but its parent and the reference. */
export function replaceable({ lanes, reference }, parent) {
  return lanes.length < MOST_LANES ? [] : lanes.filter((lane) => lane !== parent && lane !== reference);
}

/** A lane that is `parent` with something changed from a step on, in the place of the lane `gone` where one makes
 * room: {trace: where it is shown, child: its lane, from}. */
export function branchOf(trace, parent, changed, from, name, gone = null) {
  const shown = trace.withLanes(trace.lanes.filter((lane) => lane !== gone));
  const child = shown.branch({ ...parent.decoder, parent: parent.id, ...changed, id: freeId(trace), name }, from);
  return { trace: shown, child, from };
}

const DECISIONS = ["masked", "written", "unlocked", "unmasked", "filled", "locked"];
const decided = (record) =>
  JSON.stringify([record.computed, ...DECISIONS.map((name) => (record[name] ?? []).map(String).sort())]);

/** Whether a step that a lane has, computed again, decides what it did. */
export const repeats = (lane, record) => decided(record) === decided(lane.records[record.step]);

/** A branch whose lane, computed again by that engine, parts in a step from what is on show: that lane and the one that
 * it came from go on from there as they are computed now. {trace, child, from, ..., parted: a sentence}, see branchOf. */
export function partedAt(branching, { lane: id, step }, engine) {
  const { trace: shown } = branching;
  const lane = shown.lane(id);
  const parent = shown.lane(lane.decoder.parent);
  const trace = shown.cutAt([parent ?? lane, lane], step);
  const child = trace.lane(branching.child.id);
  const { name } = parent ?? lane;
  const parted = `Computed again by ${engine}, “${name}” parts from its record in step ${step + 1}: the new computation is shown.`;
  return { ...branching, trace, child, from: child.count, parted };
}

/** The cursor's last step that a branch shares with its parent; -1 where it shares none. */
export const cursorBefore = ({ trace, child, from }) => (from ? trace.race.cursorAt(child, from - 1) : -1);

/** Lanes in the order in which they stand beside each other: a lane comes after its parent, where that is among them. */
export function besideParents(lanes) {
  const placed = [];
  for (const lane of lanes) {
    const at = placed.findIndex(({ id }) => id === lane.decoder.parent);
    placed.splice(at < 0 ? placed.length : at + 1, 0, lane);
  }
  return placed;
}
