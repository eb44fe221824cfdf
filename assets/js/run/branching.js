// Makes branches: traces that show a new lane beside the lanes that stay, before a decoder computes the new lane.

import { MOST_LANES } from "../trace/states.js";

/** An id that neither a lane of a trace nor a parent of a lane has. */
export function freeId({ lanes }) {
  const taken = new Set(lanes.flatMap(({ decoder: { id, parent } }) => [id, parent]));
  let number = 1;
  while (taken.has(`what-if-${number}`)) number++;
  return `what-if-${number}`;
}

/** The lanes that a new lane may replace: [] if there is room, else all lanes except its parent and the reference. */
export function replaceable({ lanes, reference }, parent) {
  return lanes.length < MOST_LANES ? [] : lanes.filter((lane) => lane !== parent && lane !== reference);
}

/**
 * A branch: the lane `parent` with changes from a step on. Returns {trace, child, from}.
 * @param {Trace} trace the trace of the parent
 * @param {Lane} parent
 * @param {object} changed the changed fields of the decoder
 * @param {number} from the first changed step
 * @param {string} name the name of the new lane
 * @param {Lane | null} gone the lane that the new lane replaces
 */
export function branchOf(trace, parent, changed, from, name, gone = null) {
  const shown = trace.withLanes(trace.lanes.filter((lane) => lane !== gone));
  const child = shown.branch({ ...parent.decoder, parent: parent.id, ...changed, id: freeId(trace), name }, from);
  return { trace: shown, child, from };
}

const DECISIONS = ["masked", "written", "unlocked", "unmasked", "filled", "locked"];
const decided = (record) =>
  JSON.stringify([record.computed, ...DECISIONS.map((name) => (record[name] ?? []).map(String).sort())]);

/** Whether a step that was computed again has the same decisions as the lane's record. */
export const repeats = (lane, record) => decided(record) === decided(lane.records[record.step]);

/**
 * A branch after a lane that was computed again by another engine has decided differently in a step. The lane and its
 * parent are cut at that step, and continue with the new results.
 * Returns {trace, child, from, ..., parted} (see branchOf); parted: a sentence.
 */
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

/** The cursor's last step that a branch shares with its parent, -1 if it shares none. */
export const cursorBefore = ({ trace, child, from }) => (from ? trace.race.cursorAt(child, from - 1) : -1);

/** Lanes in the order of their display: a lane comes after its parent. */
export function besideParents(lanes) {
  const placed = [];
  for (const lane of lanes) {
    const at = placed.findIndex(({ id }) => id === lane.decoder.parent);
    placed.splice(at < 0 ? placed.length : at + 1, 0, lane);
  }
  return placed;
}
