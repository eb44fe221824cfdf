// Touches: what a person did to a lane, as a list of events, and what the touches changed. A touched trace shows two
// lanes: the original lane, and the same lane with the touches.

import { isMasked } from "./states.js";

export const MOST_TOUCHES = 8;

const textsOf = ({ decoder: { events = [] } }) => events.map((event) => JSON.stringify(event));

/** {original, touched, touches: events} of a touched trace; null for any other trace. */
export function touchesOf({ lanes }) {
  const [original, touched] = lanes;
  if (lanes.length !== 2 || touched.decoder.parent !== original.id) return null;
  const before = textsOf(original);
  const touches = (touched.decoder.events ?? []).filter((event) => !before.includes(JSON.stringify(event)));
  return touches.length ? { original, touched, touches } : null;
}

/** The name of a touched lane. */
export function touchedName({ name }, events) {
  const words = events.every(({ kind }) => kind === "write");
  const touches = words ? "words" : "touches";
  const one = words ? "word" : { lock: "lock", unlock: "unlock", mask: "mask", rule: "rule" }[events[0].kind];
  return `${name.slice(0, 56)}, with your ${events.length > 1 ? `${events.length} ${touches}` : one}`;
}

/** A lane's events with a new event. Later events, and events at the same position in the same step, are removed. */
export const withEvent = (events, event) => [
  ...events.filter(({ step, position }) => step < event.step || (step === event.step && position !== event.position)),
  event,
];

/**
 * What can be done to a cell of a lane.
 * @typedef {object} Touchable
 * @property {boolean} given whether the cell belongs to the prompt
 * @property {boolean} masked
 * @property {boolean} locked
 * @property {number | null} writes the step before which a word is written there, null if no word can be written
 * @property {number} seen the step whose likely tokens the cell shows
 * @property {number | null} next the step before which other events happen, null at the end
 * @property {string} keeps the reason why the policy takes no word, a sentence, or ""
 */

/** The Touchable of a cell after a lane's step t. */
export function touchable(trace, lane, cell, t) {
  const state = lane.row(t)[cell];
  const masked = isMasked(state);
  const given = Boolean(trace.given[cell]);
  const next = lane.endsAt(t) ? null : t + 1;
  const replays = lane.decoder.unmask.kind === "replay";
  const keeps = replays ? `“${lane.name}” repeats recorded commits: no word can be chosen there.` : "";
  const written = masked ? null : lane.unmaskStep(cell, t);
  const isOfCell = ({ step, position }) => step === written && position === cell;
  const byHand = written !== null && (lane.decoder.events ?? []).some(isOfCell);
  const writes = given || keeps ? null : (written ?? next);
  const seen = written === null ? t : written - Number(byHand);
  return { given, masked, locked: lane.isLocked(cell, t), writes, seen, next, keeps };
}

/**
 * What the touches have changed by a step: {count, of, first}.
 * count: the number of cells with another token. of: the number of cells in which no word was chosen.
 * first: {cell, step} of the first change, or null.
 */
export function changedBy({ given, n }, { original, touched, touches }, step) {
  const wordCells = new Set(touches.filter(({ kind }) => kind === "write").map(({ position }) => position));
  let count = 0;
  let of = 0;
  let first = null;
  for (let cell = 0; cell < n; cell++) {
    if (given[cell] || wordCells.has(cell)) continue;
    of++;
    const [word, other] = [touched, original].map((lane) => lane.token(cell, step));
    if (word < 0 || other < 0 || word === other) continue;
    count++;
    const since = touched.unmaskStep(cell, step);
    if (!first || since < first.step) first = { cell, step: since };
  }
  return { count, of, first };
}

/**
 * The token that a cell shows after a lane's step: its token, or else its likeliest token, or -1 if that is unknown.
 */
export function showsAt(lane, cell, t) {
  const token = lane.token(cell, t);
  return token >= 0 || t < 0 ? token : lane.guesses[lane.clamp(t) * lane.n + cell];
}

/** Eight hexadecimal digits that identify a list of whole numbers: the hash FNV-1a of their four bytes. */
export function digitsOf(numbers) {
  let hash = 0x811c9dc5;
  for (const number of numbers)
    for (let shift = 0; shift < 32; shift += 8) {
      hash ^= (number >>> shift) & 255;
      hash = Math.imul(hash, 0x01000193);
    }
  return (hash >>> 0).toString(16).padStart(8, "0");
}

/** The digits of the last tokens of all lanes of a complete trace; "" for a trace that is not complete. */
export const digitsOfTokens = (trace) =>
  trace.complete ? digitsOf(trace.lanes.flatMap((lane) => [...lane.tokens(lane.count - 1)])) : "";
