// Events: {step, kind, position, token, compute}, what a person does to a run before a step. They mirror
// surelock/decoding/events.py. An event that does not fit the run is refused by a RangeError of one sentence.

/** The order in which the events of a step are applied. */
const ORDER = ["unlock", "mask", "write", "lock", "rule"];
/** Pairs of kinds that exclude each other at one position in one step. */
const OPPOSED = [
  ["lock", "unlock"],
  ["mask", "write"],
  ["lock", "mask"],
];

const where = ({ step, position }) => `event at step ${step}${position === undefined ? "" : `, position ${position}`}`;

/** A RangeError that refuses an event for a reason. */
export const refused = (event, reason) => new RangeError(`${where(event)}: ${reason}`);

/**
 * The checked events of a run, in order: by step, and within a step so that a locked position can be written and a
 * written position can be locked. Throws a RangeError for an event that the run cannot have.
 */
export function inOrder(events, canvas, steps, vocabSize) {
  for (const event of events) {
    if (event.step >= steps)
      throw refused(event, `there is no such step, the run has ${steps}, from 0 to ${steps - 1}`);
    if (event.position !== undefined) checkPlace(event, canvas, vocabSize);
  }
  checkPairs(events);
  return [...events].sort((a, b) => a.step - b.step || ORDER.indexOf(a.kind) - ORDER.indexOf(b.kind));
}

function checkPlace(event, canvas, vocabSize) {
  const { kind, position, token } = event;
  const length = canvas.total;
  if (position >= length)
    throw refused(event, `there is no such position, the sequence has ${length}, from 0 to ${length - 1}`);
  if ((kind === "write" || kind === "mask") && canvas.given[position])
    throw refused(event, "it belongs to the prompt, whose tokens stay as they are");
  if (token !== undefined && (token >= vocabSize || token === canvas.mask_id)) {
    const named = token === canvas.mask_id ? "the mask token" : `outside 0 to ${vocabSize - 1}`;
    throw refused(event, `token ${token} cannot be written, it is ${named}`);
  }
}

function checkPairs(events) {
  const kinds = new Map();
  for (const event of events) {
    const place = [event.step, event.position].join();
    const others = kinds.get(place) ?? kinds.set(place, new Set()).get(place);
    if (others.has(event.kind)) throw refused(event, `'${event.kind}' is asked for twice`);
    others.add(event.kind);
    for (const pair of OPPOSED)
      if (pair.every((kind) => others.has(kind))) throw refused(event, `it cannot ${pair.join(" and ")} at once`);
  }
}

/** Applies an event of a position to the state. Throws a RangeError if it does not fit the state. */
export function apply(event, state) {
  const slot = event.position;
  const masked = state.masked[slot];
  const locked = state.locked[slot];
  if (event.kind === "lock" && (masked || locked))
    throw refused(event, `it is ${masked ? "masked" : "locked"}, so it cannot be locked`);
  if (event.kind === "lock" && state.computed_at[slot] < 0)
    throw refused(event, "it was never computed, so there is nothing to lock");
  if (event.kind === "unlock" && !locked) throw refused(event, "it is not locked, so it cannot be unlocked");
  if (event.kind === "mask" && masked) throw refused(event, "it is masked already");
  if (event.kind === "lock") state.lock([slot]);
  else if (locked) state.unlock([slot]);
  if (event.kind === "write") state.commit([slot], event.token);
  if (event.kind === "mask") state.mask([slot]);
}
