// What a lesson asks of a run: pure functions from a trace and a question's parameters to its answer. A lesson's file
// names the function (`is`) and gives the parameters; positions, shares and lanes' ids are what comes back.
//
// A lane is named by its id, or as "reference" or "subject" (the lane that the page's sentences are about). A moment
// is named by `at`, the share of the lane's steps that are over by then.

import { subject } from "./narrator.js";

const generated = ({ promptLength, n }) => Array.from({ length: n - promptLength }, (_, i) => promptLength + i);

/** The lane that a lesson speaks of, or undefined where the run has none. */
export function laneOf(trace, name) {
  if (name === "reference") return trace.reference;
  return name === "subject" ? subject(trace) : trace.lane(name);
}

/** The last step, from 0, of the first `share` of so many. */
export const stepOf = (share, count) => Math.max(0, Math.ceil(share * count) - 1);

/** The first `count` positions that are written after a moment. */
function writtenNext(trace, { lane: name, at, count }) {
  const lane = laneOf(trace, name);
  return lane.steps
    .slice(stepOf(at, lane.count) + 1)
    .flatMap(({ unmasked }) => unmasked)
    .slice(0, count);
}

/** The share of the steps that wrote something in which the leftmost masked position was written. */
function leftmostShare(trace, { lane: name }) {
  const lane = laneOf(trace, name);
  const masked = new Set(generated(trace));
  let [steps, leftmost] = [0, 0];
  for (const { unmasked } of lane.steps) {
    if (!unmasked.length) continue;
    steps++;
    if (unmasked.includes(Math.min(...masked))) leftmost++;
    for (const p of unmasked) masked.delete(p);
  }
  return leftmost / steps;
}

/** Of the rows that could be compared with the step before, the share that moved by at most `below` nats. */
function stillShare(trace, { lane: name, below }) {
  const { kl, count, n } = laneOf(trace, name);
  const known = kl.subarray(0, count * n).filter(Number.isFinite);
  return known.filter((nats) => nats <= below).length / known.length;
}

/** The generated positions that lock first: `count` of them, and whatever locks in the same step as the last of these. */
function firstLocked(trace, { lane: name, count }) {
  const lane = laneOf(trace, name);
  const when = new Map(generated(trace).map((p) => [p, lane.lockStep(p, lane.count - 1)]));
  const locked = generated(trace).filter((p) => when.get(p) >= 0);
  locked.sort((a, b) => when.get(a) - when.get(b) || a - b);
  const last = when.get(locked[Math.min(count, locked.length) - 1]);
  return locked.filter((p) => when.get(p) <= last);
}

/** The median number of steps from a generated position's writing to its lock. */
function restSteps(trace, { lane: name }) {
  const lane = laneOf(trace, name);
  const last = lane.count - 1;
  const locked = generated(trace).filter((p) => lane.lockStep(p, last) >= 0);
  const waits = locked.map((p) => lane.lockStep(p, last) - lane.unmaskStep(p, last)).sort((a, b) => a - b);
  if (!waits.length) return 0;
  const middle = waits.length >> 1;
  return waits.length % 2 ? waits[middle] : (waits[middle - 1] + waits[middle]) / 2;
}

const errorOf = (lane) => lane.steps.at(-1).damage.mean;

/** The share of the words that would have been others, had the step computed every position. */
function changedShare(trace, { lane: name }) {
  const { changed, commits } = laneOf(trace, name).steps.at(-1).damage;
  return changed / Math.max(1, commits);
}

/** The id of the lane with the largest ("most") or the smallest ("least") commit error, or "same" where the next one is within `tie` of the larger. */
function errorRank(trace, { lanes, want, tie }) {
  const sign = want === "most" ? -1 : 1;
  const ranked = lanes.map((name) => laneOf(trace, name)).sort((a, b) => sign * (errorOf(a) - errorOf(b)));
  const [first, second] = ranked.map(errorOf);
  return Math.abs(first - second) <= tie * Math.max(first, second) ? "same" : ranked[0].id;
}

/** How many times the commit error of a lane is that of another. */
const errorRatio = (trace, { lane, beside }) => errorOf(laneOf(trace, lane)) / errorOf(laneOf(trace, beside));

const flops = (lane) => lane.steps.at(-1).totalFlops;

/** The share of the reference's FLOPs that a lane saves. */
const flopsSaved = (trace, { lane }) => 1 - flops(laneOf(trace, lane)) / flops(trace.reference);

/** The share of the reference's time that a lane saves; below 0 where it was slower. */
const timeSaved = (trace, { lane }) => 1 - laneOf(trace, lane).seconds / trace.reference.seconds;

/** Whether more was saved of the "flops" or of the "time", or the "same" within `tie`. */
function savedMore(trace, { lane, tie }) {
  const gap = flopsSaved(trace, { lane }) - timeSaved(trace, { lane });
  if (Math.abs(gap) <= tie) return "same";
  return gap > 0 ? "flops" : "time";
}

/** The share of the generated positions that stand at or after the end of the text. */
function afterEndShare(trace, { lane: name }) {
  const lane = laneOf(trace, name);
  const positions = generated(trace);
  const end = positions.find((p) => lane.token(p, lane.count - 1) === trace.eosId);
  return end === undefined ? 0 : (trace.n - end) / positions.length;
}

/** By what share the dearest of some lanes costs more FLOPs than the cheapest. */
function costSpread(trace, { lanes }) {
  const costs = lanes.map((name) => flops(laneOf(trace, name)));
  return Math.max(...costs) / Math.min(...costs) - 1;
}

export const ANSWERS = {
  written_next: writtenNext,
  leftmost_share: leftmostShare,
  still_share: stillShare,
  first_locked: firstLocked,
  rest_steps: restSteps,
  changed_share: changedShare,
  error_rank: errorRank,
  error_ratio: errorRatio,
  flops_saved: flopsSaved,
  time_saved: timeSaved,
  saved_more: savedMore,
  after_end_share: afterEndShare,
  cost_spread: costSpread,
};

/** The answer on this run: positions, a number, or an option's id. */
export const answer = (trace, { is, ...parameters }) => ANSWERS[is](trace, parameters);

/** Whether what a lesson says shows on this run: {answer, at_least, at_most, equals}. */
export function holds(trace, { answer: asked, at_least: low, at_most: high, equals }) {
  const found = answer(trace, asked);
  if (equals !== undefined) return found === equals;
  return found >= (low ?? -Infinity) && found <= (high ?? Infinity);
}

/** Why a run cannot be this lesson's, in a sentence; "" where it can. */
export function misfit(trace, { needs }) {
  const suits = ({ lane, compute, unmask }) => {
    const { contestant } = laneOf(trace, lane) ?? {};
    return contestant?.compute.kind === compute && (unmask?.includes(contestant.unmask.kind) ?? true);
  };
  const lacks = needs.some((each) => !suits(each));
  if (lacks) return "This lesson is about other contestants than those of the run on show.";
  if (!trace.complete) return "The run on show is not finished.";
  const measured = trace.lanes.every((lane) => lane.steps.at(-1)?.damage);
  return measured ? "" : "The commit errors of the run on show were not measured.";
}
