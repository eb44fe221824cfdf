// What a lesson asks of a run: pure functions from a trace and a question's parameters to its answer. A lesson's file
// names the function (`is`) and gives the parameters; positions, shares and lanes' ids are what comes back. The functions
// are given lanes for their names.
//
// A lane is named by its id, or as "reference" or "subject" (the lane that the page's sentences are about). A moment
// is named by `at`, the share of the lane's steps that are over by then.

import { count, percent, seconds, short } from "../dom.js";
import { quantile } from "../trace/lane.js";
import { timedTogether } from "../trace/timing.js";

export const among = (list) => [list.slice(0, -1).join(", "), list.at(-1)].filter(Boolean).join(" and ");
const quoted = ({ name }) => `“${name}”`;
const error = (lane) => short(errorOf(lane));
const big = (n) => n.toLocaleString("en");
const generated = ({ given }) => Array.from(given.keys()).filter((p) => !given[p]);

/** The lane that a lesson speaks of, or undefined where the run has none. */
export function laneOf(trace, name) {
  if (name === "reference") return trace.reference;
  return name === "subject" ? trace.subject : trace.lane(name);
}

/** What a page shows on this run: its parts, and "lane-1", "lane-2", ... for the lanes that it names; for all where it names none. */
export function shownParts(trace, shows) {
  const isLane = (part) => part.startsWith("lane:");
  const named = shows.filter(isLane).map((part) => laneOf(trace, part.slice("lane:".length)));
  const lanes = named.some(Boolean) ? trace.lanes.filter((lane) => named.includes(lane)) : trace.lanes;
  return [...shows.filter((part) => !isLane(part)), ...lanes.map((lane) => `lane-${trace.colourOf(lane) + 1}`)];
}

/** A page's text with the lanes' names where it has "{reference}" or "{subject}". */
export const named = (text, trace) => text.replace(/\{(reference|subject)\}/g, (_, lane) => laneOf(trace, lane).name);

/** The last step, from 0, of the first `share` of so many; -1 of a share below 0: before the first. */
export const stepOf = (share, count) => (share < 0 ? -1 : Math.max(0, Math.ceil(share * count) - 1));

/** A question's parameters with lanes in the place of their names. */
const asks = (trace, { lane, beside, lanes = [], ...others }) => ({
  ...others,
  lane: laneOf(trace, lane),
  beside: laneOf(trace, beside),
  lanes: lanes.map((name) => laneOf(trace, name)),
});

/** The first `count` positions that are written after a moment. */
function writtenNext(_, { lane, at, count }) {
  return lane.steps
    .slice(stepOf(at, lane.count) + 1)
    .flatMap(({ unmasked }) => unmasked)
    .slice(0, count);
}

/** Of the steps that wrote something, those in which the leftmost masked position was written. */
function leftmostSteps(trace, { lane }) {
  const masked = new Set(generated(trace));
  let [steps, leftmost] = [0, 0];
  for (const { unmasked } of lane.steps) {
    if (!unmasked.length) continue;
    steps++;
    if (unmasked.includes(Math.min(...masked))) leftmost++;
    for (const p of unmasked) masked.delete(p);
  }
  return { are: leftmost, of: steps };
}

/** Of the rows that could be compared with the step before, those that moved by at most `below` nats. */
function stillRows(_, { lane: { kl, count, n }, below }) {
  const known = kl.subarray(0, count * n).filter(Number.isFinite);
  return { are: known.filter((nats) => nats <= below).length, of: known.length };
}

/** The generated positions that lock first: `count` of them, and whatever locks in the same step as the last of these. */
function firstLocked(trace, { lane, count }) {
  const when = new Map(generated(trace).map((p) => [p, lane.lockStep(p, lane.count - 1)]));
  const locked = generated(trace).filter((p) => when.get(p) >= 0);
  locked.sort((a, b) => when.get(a) - when.get(b) || a - b);
  const last = when.get(locked[Math.min(count, locked.length) - 1]);
  return locked.filter((p) => when.get(p) <= last);
}

/** The numbers of steps from the generated positions' writing to their lock, in order. */
function waits(trace, { lane }) {
  const last = lane.count - 1;
  const locked = generated(trace).filter((p) => lane.lockStep(p, last) >= 0);
  return locked.map((p) => lane.lockStep(p, last) - lane.unmaskStep(p, last)).sort((a, b) => a - b);
}

const errorOf = (lane) => lane.steps.at(-1).damage.mean;

/** Of the words written, those that would have been others, had the step computed every position. */
function changedWords(_, { lane }) {
  const { changed, commits } = lane.steps.at(-1).damage;
  return { are: changed, of: Math.max(1, commits) };
}

/** The id of the lane with the largest ("most") or the smallest ("least") commit error, or "same" where the next one is within `tie` of the larger. */
function errorRank(_, { lanes, want, tie }) {
  const sign = want === "most" ? -1 : 1;
  const ranked = lanes.toSorted((a, b) => sign * (errorOf(a) - errorOf(b)));
  const [first, second] = ranked.map(errorOf);
  return Math.abs(first - second) <= tie * Math.max(first, second) ? "same" : ranked[0].id;
}

/** Of each blank of the prompt its positions. */
function blanksOf({ given, header: { prompt_tokens: prompt } }) {
  const masked = Array.from(prompt.keys()).filter((p) => !given[p]);
  const starts = masked.filter((p) => !masked.includes(p - 1));
  return starts.map((from, i) => masked.filter((p) => p >= from && p < (starts[i + 1] ?? prompt.length)));
}

const begun = (lane, blank) => Math.min(...blank.map((p) => lane.unmaskStep(p, lane.count - 1)));

/** Which of two blanks is begun in the earlier step: "first" or "second". */
function begunFirst(trace, { lane }) {
  const [first, second] = blanksOf(trace).map((blank) => begun(lane, blank));
  return first < second ? "first" : "second";
}

const filling = ({ pieces }, lane, blank) => pieces.text(blank.map((p) => lane.token(p, lane.count - 1))).trim();

/** In which of two blanks two lanes differ: "first", "second", "both" or "none". */
function differingBlank(trace, { lanes: [one, other] }) {
  const [first, second] = blanksOf(trace).map((blank) => filling(trace, one, blank) !== filling(trace, other, blank));
  if (first) return second ? "both" : "first";
  return second ? "second" : "none";
}

function fillings(trace, { lanes }) {
  const told = (lane) => among(blanksOf(trace).map((blank) => `“${filling(trace, lane, blank)}”`));
  return `The blanks hold ${lanes.map((lane) => `${told(lane)} in ${quoted(lane)}`).join(", ")}.`;
}

/** Which lanes' two blanks hold the same: the id of the only one, "both" or "none". */
function sameTwice(trace, { lanes }) {
  const [first, second] = blanksOf(trace);
  const same = lanes.filter((lane) => filling(trace, lane, first) === filling(trace, lane, second));
  if (same.length > 1) return "both";
  return same[0]?.id ?? "none";
}

/** [[id, p, q], ...] of the tokens that are likely in both of two one-token blanks before anything is written there. */
function sharedNames(trace, { lane }) {
  const [first, second] = blanksOf(trace).map(([p]) => lane.top(p, 0) ?? []);
  const others = new Map(second);
  return first.filter(([id]) => others.has(id)).map(([id, p]) => [id, p, others.get(id)]);
}

/** The chance that two blanks get the same token, drawn at once: the sum of products; NaN where nothing is recorded. */
function sameChance(trace, { lane }) {
  const names = sharedNames(trace, { lane });
  return names.length ? names.reduce((sum, [, p, q]) => sum + p * q, 0) : Number.NaN;
}

function likelyNames(trace, { lane }) {
  const names = sharedNames(trace, { lane });
  const said = names.map(([id, p, q]) => `“${trace.pieces.text([id]).trim()}” ${percent(p)} and ${percent(q)}`);
  return names.length
    ? `The likeliest of both blanks are ${among(said)}: multiply, and add up.`
    : "Nothing is recorded.";
}

const flops = (lane) => lane.steps.at(-1).totalFlops;

const flopsSaved = (trace, { lane }) => 1 - flops(lane) / flops(trace.reference);

/** The share of the reference's time that a lane saves; below 0 where it was slower. */
const timeSaved = (trace, { lane }) => 1 - lane.seconds / trace.reference.seconds;

/** Whether more was saved of the "flops" or of the "time", or the "same" within `tie`. */
function savedMore(trace, { lane, tie }) {
  const gap = flopsSaved(trace, { lane }) - timeSaved(trace, { lane });
  if (Math.abs(gap) <= tie) return "same";
  return gap > 0 ? "flops" : "time";
}

/** Of the generated positions, those that stand at or after the end of the text. */
function afterEnd(trace, { lane }) {
  return { are: trace.n - trace.endOf(lane, lane.count - 1).position, of: generated(trace).length };
}

function costSpread(_, { lanes }) {
  const costs = lanes.map(flops);
  return Math.max(...costs) / Math.min(...costs) - 1;
}

/** How sure the model was of what it wrote, and of what it might have written instead. */
function surer(trace, { lane, at }, { right, missed, nameOf }) {
  const sure = (p, t) => percent(lane.confidence[t * lane.n + p]);
  const there = right.map((p) => sure(p, lane.unmaskStep(p, lane.count - 1)));
  const told = `The model gave its likeliest token there ${among(there)} when it wrote it`;
  const { block_length: length = lane.n } = lane.decoder.settings;
  const block = (p) => Math.floor((p - trace.promptLength) / length);
  const later = missed.filter((p) => block(p) > Math.max(...right.map(block)));
  const wait = later.length ? ` A later block waits for its turn: ${among(later.map(nameOf))}.` : "";
  const next = stepOf(at, lane.count) + 1;
  const rest = missed.filter((p) => !later.includes(p)).map((p) => `${sure(p, next)} at ${nameOf(p)}`);
  return `${told}${rest.length ? `; in the first of these steps it gave ${among(rest)}` : ""}.${wait}`;
}

function locked(_, { lane }, { right, missed, nameOf }) {
  const when = (p) => lane.lockStep(p, lane.count - 1) + 1;
  const steps = right.map(when);
  const [first, last] = [Math.min(...steps), Math.max(...steps)];
  const others = missed.map((p) => `${nameOf(p)} ${when(p) ? `in step ${when(p)}` : "never"}`);
  const span = first === last ? `step ${first}` : `steps ${first} to ${last}`;
  return `They locked in ${span}${others.length ? `; ${among(others)}` : ""}.`;
}

function waited(trace, question) {
  const steps = waits(trace, question);
  if (!steps.length) return "No token locked.";
  const [least, most] = [steps[0], steps.at(-1)].map((n) => count(n, "step"));
  return `Of ${count(steps.length, "token")} that locked the quickest waited ${least}, the slowest ${most}.`;
}

function costsOf(lanes) {
  const cost = ({ steps, ...lane }) =>
    `${percent(steps.at(-1).totalFlops / steps.at(-1).totalBaseline, 1)} by ${quoted(lane)}`;
  return `Of the FLOPs of computing everything, ${among(lanes.map(cost))} were done.`;
}

/** A question for a share: what is counted, and the reason of the answer, tell(are, of, question). */
const share = (counts, tell) => {
  const of = (f) => (trace, question) => f(counts(trace, question), question);
  return {
    answer: of(({ are, of: all }) => are / all),
    because: of(({ are, of: all }, asked) => tell(are, all, asked)),
  };
};

/** By what a question is (`is`): its answer on a run, and the numbers of the run that it follows from, in a sentence. */
export const ANSWERS = {
  written_next: { answer: writtenNext, because: surer },
  first_locked: { answer: firstLocked, because: locked },
  rest_steps: { answer: (...asked) => quantile(waits(...asked), 0.5) || 0, because: waited },
  leftmost_share: share(leftmostSteps, (are, of) => `It was so in ${are} of ${count(of, "step")}.`),
  still_share: share(stillRows, (are, of, { below }) => `${big(are)} of ${big(of)} rows moved by at most ${below}.`),
  changed_share: share(changedWords, (are, of) => `It was so at ${are} of ${count(of, "choice")}.`),
  after_end_share: share(afterEnd, (are, of) =>
    are ? `${are} of ${count(of, "position")} stand there.` : "The text does not end before its last position.",
  ),
  error_rank: {
    answer: errorRank,
    because: (_, { lanes }) =>
      `The commit errors are ${among(lanes.map((lane) => `${error(lane)} nats for ${quoted(lane)}`))}.`,
  },
  error_ratio: {
    answer: (_, { lane, beside }) => errorOf(lane) / errorOf(beside),
    because: (_, { lane, beside }) => `The commit errors are ${error(lane)} and ${error(beside)} nats.`,
  },
  flops_saved: {
    answer: flopsSaved,
    because: (trace, { lane }) =>
      `${quoted(lane)} did ${percent(1 - flopsSaved(trace, { lane }))} of the FLOPs of ${quoted(trace.reference)}.`,
  },
  time_saved: {
    answer: timeSaved,
    because: ({ reference }, { lane }) =>
      `${among([lane, reference].map((each) => `${quoted(each)} took ${seconds(each.seconds)}`))}.`,
  },
  saved_more: {
    answer: savedMore,
    because: (trace, { lane }) =>
      `${quoted(lane)} saved ${percent(flopsSaved(trace, { lane }))} of the FLOPs and ${percent(timeSaved(trace, { lane }))} of the time.`,
  },
  begun_first: {
    answer: begunFirst,
    because: (trace, { lane }) =>
      `They were begun in the steps ${among(blanksOf(trace).map((blank) => begun(lane, blank) + 1))}.`,
  },
  differing_blank: { answer: differingBlank, because: fillings },
  same_twice: { answer: sameTwice, because: fillings },
  same_chance: { answer: sameChance, because: likelyNames },
  cost_spread: { answer: costSpread, because: (_, { lanes }) => costsOf(lanes) },
};

/** The answer on this run: positions, a number, or an option's id. */
export const answer = (trace, { is, ...parameters }) => ANSWERS[is].answer(trace, asks(trace, parameters));

/** Why the answer is what it is on this run; of positions, also where those that were predicted wrongly stand. */
export function because(trace, question, predicted, nameOf) {
  const right = answer(trace, question);
  const missed = Array.isArray(right) ? (predicted ?? []).filter((p) => !right.includes(p)) : [];
  return ANSWERS[question.is].because(trace, asks(trace, question), { right, missed, nameOf });
}

/** Whether what a lesson says shows on this run: {answer, at_least, at_most, equals: one id or a list}. */
export function holds(trace, { answer: question, at_least: low, at_most: high, equals }) {
  const found = answer(trace, question);
  if (equals !== undefined) return [equals].flat().includes(found);
  return found >= (low ?? -Infinity) && found <= (high ?? Infinity);
}

/** Why a run cannot be this lesson's, in a sentence; "" where it can. */
export function misfit(trace, { needs, own, timed }) {
  const suits = ({ lane, compute, unmask }) => {
    const { decoder } = laneOf(trace, lane) ?? {};
    return decoder?.compute.kind === compute && (unmask?.includes(decoder.unmask.kind) ?? true);
  };
  const lacks = needs.some((each) => !suits(each)) || (own && !trace.lane(own.lane));
  if (lacks) return "This lesson is about other lanes than those of the run on show.";
  if (!trace.complete) return "The run on show is not finished.";
  if (timed && !timedTogether(trace.reference, trace.subject))
    return "The lanes of the run on show were not timed together.";
  const measured = trace.lanes.every((lane) => lane.steps.at(-1)?.damage);
  return measured ? "" : "The commit errors of the run on show were not measured.";
}
