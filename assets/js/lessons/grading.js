// Grading: the right answer to a question about a run, its reason, and whether a prediction agrees with the answer.
// The functions depend only on a trace and a question's parameters. A question names its function in the field `is`.
// The function returns positions, a number, or the id of a lane or an option. steps.js explains how a lesson names
// lanes and moments.

import { count, percent, seconds, short } from "../dom.js";
import { quantile } from "../trace/lane.js";
import { laneOf, stepOf } from "./steps.js";

const LISTED = 6;
const CLOSE = { "%": 5, steps: 1 }; // the greatest error of a prediction that counts as right, by unit

/** The texts of a list as a phrase: "a, b and c". */
export const among = (list) => [list.slice(0, -1).join(", "), list.at(-1)].filter(Boolean).join(" and ");
const quoted = ({ name }) => `“${name}”`;
const error = (lane) => short(errorOf(lane));
const big = (n) => n.toLocaleString("en");
const generated = ({ given }) => Array.from(given.keys()).filter((p) => !given[p]);

/** A question's parameters, with lanes in place of their names. */
const withLanes = (trace, { lane, beside, lanes = [], ...others }) => ({
  ...others,
  lane: laneOf(trace, lane),
  beside: laneOf(trace, beside),
  lanes: lanes.map((name) => laneOf(trace, name)),
});

/** The first `count` positions that are written after the moment `at`. */
function writtenNext(_, { lane, at, count }) {
  return lane.steps
    .slice(stepOf(at, lane.count) + 1)
    .flatMap(({ unmasked }) => unmasked)
    .slice(0, count);
}

/** {are, of}: the number of steps that wrote the leftmost masked position, and of all steps that wrote a position. */
function leftmostSteps(trace, { lane }) {
  const masked = new Set(generated(trace));
  let steps = 0;
  let leftmost = 0;
  for (const { unmasked } of lane.steps) {
    if (!unmasked.length) continue;
    steps++;
    if (unmasked.includes(Math.min(...masked))) leftmost++;
    for (const p of unmasked) masked.delete(p);
  }
  return { are: leftmost, of: steps };
}

/** {are, of}: the number of rows whose KL is at most `below` nats, and of all rows with a finite KL. */
function stillRows(_, { lane: { kl, count, n }, below }) {
  const known = kl.subarray(0, count * n).filter(Number.isFinite);
  return { are: known.filter((nats) => nats <= below).length, of: known.length };
}

/**
 * The first `count` generated positions that lock. Positions that lock in the same step as the last of them count,
 * too.
 */
function firstLocked(trace, { lane, count }) {
  const when = new Map(generated(trace).map((p) => [p, lane.lockStep(p, lane.count - 1)]));
  const locked = generated(trace).filter((p) => when.get(p) >= 0);
  locked.sort((a, b) => when.get(a) - when.get(b) || a - b);
  const last = when.get(locked[Math.min(count, locked.length) - 1]);
  return locked.filter((p) => when.get(p) <= last);
}

/** The numbers of steps from the writing of a generated position to its lock, in ascending order. */
function waits(trace, { lane }) {
  const last = lane.count - 1;
  const locked = generated(trace).filter((p) => lane.lockStep(p, last) >= 0);
  return locked.map((p) => lane.lockStep(p, last) - lane.unmaskStep(p, last)).sort((a, b) => a - b);
}

const errorOf = (lane) => lane.steps.at(-1).damage.mean;

/**
 * {are, of}: the number of written tokens that a step with all positions computed would not have chosen, and of all.
 */
function changedWords(_, { lane }) {
  const { changed, commits } = lane.steps.at(-1).damage;
  return { are: changed, of: Math.max(1, commits) };
}

/**
 * The id of the lane with the largest (`want` is "most") or the smallest (`want` is "least") commit error; "same" if
 * the next lane's error is closer than the share `tie` of the larger error.
 */
function errorRank(_, { lanes, want, tie }) {
  const sign = want === "most" ? -1 : 1;
  const ranked = lanes.toSorted((a, b) => sign * (errorOf(a) - errorOf(b)));
  const [first, second] = ranked.map(errorOf);
  return Math.abs(first - second) <= tie * Math.max(first, second) ? "same" : ranked[0].id;
}

/** The blanks of the prompt; a blank is the list of its positions. */
function blanksOf({ given, header: { prompt_tokens: prompt } }) {
  const masked = Array.from(prompt.keys()).filter((p) => !given[p]);
  const starts = masked.filter((p) => !masked.includes(p - 1));
  return starts.map((from, i) => masked.filter((p) => p >= from && p < (starts[i + 1] ?? prompt.length)));
}

/** The step in which the first token of a blank is written. */
const begun = (lane, blank) => Math.min(...blank.map((p) => lane.unmaskStep(p, lane.count - 1)));

/** The blank whose first token is written earlier: "first" or "second". */
function begunFirst(trace, { lane }) {
  const [first, second] = blanksOf(trace).map((blank) => begun(lane, blank));
  return first < second ? "first" : "second";
}

const filling = ({ pieces }, lane, blank) => pieces.text(blank.map((p) => lane.token(p, lane.count - 1))).trim();

/** The blanks that two lanes fill differently: "first", "second", "both" or "none". */
function differingBlank(trace, { lanes: [one, other] }) {
  const [first, second] = blanksOf(trace).map((blank) => filling(trace, one, blank) !== filling(trace, other, blank));
  if (first) return second ? "both" : "first";
  return second ? "second" : "none";
}

function fillings(trace, { lanes }) {
  const words = (lane) => among(blanksOf(trace).map((blank) => `“${filling(trace, lane, blank)}”`));
  const sentences = lanes.map((lane) => `${words(lane)} in ${quoted(lane)}`);
  return `The blanks hold ${sentences.join(", ")}.`;
}

/** The lane that fills both blanks with the same words: its id, "both" if there are several such lanes, or "none". */
function sameTwice(trace, { lanes }) {
  const [first, second] = blanksOf(trace);
  const same = lanes.filter((lane) => filling(trace, lane, first) === filling(trace, lane, second));
  if (same.length > 1) return "both";
  return same[0]?.id ?? "none";
}

/**
 * [[id, p, q], ...]: tokens that are likely in both one-token blanks after the first step, with their probabilities.
 */
function sharedNames(trace, { lane }) {
  const [first, second] = blanksOf(trace).map(([p]) => lane.top(p, 0) ?? []);
  const others = new Map(second);
  return first.filter(([id]) => others.has(id)).map(([id, p]) => [id, p, others.get(id)]);
}

/**
 * The chance that two blanks get the same token if both are drawn at once: the sum of the products of probabilities.
 * NaN if no likely tokens are recorded.
 */
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

/** The share of the reference's time that a lane saves; below 0 if the lane is slower. */
const timeSaved = (trace, { lane }) => 1 - lane.seconds / trace.reference.seconds;

/**
 * "flops" or "time": the one of which the lane saves the larger share; "same" if the shares differ by at most `tie`.
 */
function savedMore(trace, { lane, tie }) {
  const gap = flopsSaved(trace, { lane }) - timeSaved(trace, { lane });
  if (Math.abs(gap) <= tie) return "same";
  return gap > 0 ? "flops" : "time";
}

/** {are, of}: the number of generated positions at or after the end of the text, and of all generated positions. */
function afterEnd(trace, { lane }) {
  return { are: trace.n - trace.endOf(lane, lane.count - 1).position, of: generated(trace).length };
}

function costSpread(_, { lanes }) {
  const costs = lanes.map(flops);
  return Math.max(...costs) / Math.min(...costs) - 1;
}

/** A sentence on the model's confidence at the right positions, and at the positions that were predicted wrongly. */
function surer(trace, { lane, at }, { right, missed, nameOf }) {
  const sure = (p, t) => percent(lane.confidence[t * lane.n + p]);
  const there = right.map((p) => sure(p, lane.unmaskStep(p, lane.count - 1)));
  const sentence = `The model gave its likeliest token there ${among(there)} when it wrote it`;
  const { block_length: length = lane.n } = lane.decoder.settings;
  const block = (p) => Math.floor((p - trace.promptLength) / length);
  const later = missed.filter((p) => block(p) > Math.max(...right.map(block)));
  const wait = later.length ? ` A later block waits for its turn: ${among(later.map(nameOf))}.` : "";
  const next = stepOf(at, lane.count) + 1;
  const rest = missed.filter((p) => !later.includes(p)).map((p) => `${sure(p, next)} at ${nameOf(p)}`);
  const instead = rest.length ? `; in the first of these steps it gave ${among(rest)}` : "";
  return `${sentence}${instead}.${wait}`;
}

function locked(_, { lane }, { right, missed, nameOf }) {
  const when = (p) => lane.lockStep(p, lane.count - 1) + 1;
  const steps = right.map(when);
  const first = Math.min(...steps);
  const last = Math.max(...steps);
  const others = missed.map((p) => `${nameOf(p)} ${when(p) ? `in step ${when(p)}` : "never"}`);
  const span = first === last ? `step ${first}` : `steps ${first} to ${last}`;
  const wrong = others.length ? `; ${among(others)}` : "";
  return `They locked in ${span}${wrong}.`;
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

/**
 * The functions of a question that asks for a share.
 * @param {function(Trace, object): {are: number, of: number}} counts the two numbers whose quotient is the answer
 * @param {function(number, number, object): string} tell the reason, a sentence with both numbers
 */
const share = (counts, tell) => {
  const of = (f) => (trace, question) => f(counts(trace, question), question);
  return {
    answer: of(({ are, of: all }) => are / all),
    because: of(({ are, of: all }, question) => tell(are, all, question)),
  };
};

/** By a question's field `is`: the functions that return its answer on a run, and the reason as a sentence. */
export const ANSWERS = {
  written_next: { answer: writtenNext, because: surer },
  first_locked: { answer: firstLocked, because: locked },
  rest_steps: { answer: (trace, question) => quantile(waits(trace, question), 0.5) || 0, because: waited },
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
      `${among([lane, reference].map((timed) => `${quoted(timed)} took ${seconds(timed.seconds)}`))}.`,
  },
  saved_more: {
    answer: savedMore,
    because: (trace, { lane }) => {
      const [work, time] = [flopsSaved, timeSaved].map((saved) => percent(saved(trace, { lane })));
      return `${quoted(lane)} saved ${work} of the FLOPs and ${time} of the time.`;
    },
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

/** The answer to a question on this run: positions, a number, or an option's id. */
export const answer = (trace, { is, ...parameters }) => ANSWERS[is].answer(trace, withLanes(trace, parameters));

/** The reason of the answer on this run, a sentence. It mentions positions that the learner predicted wrongly, too. */
export function because(trace, question, predicted, nameOf) {
  const right = answer(trace, question);
  const missed = Array.isArray(right) ? (predicted ?? []).filter((p) => !right.includes(p)) : [];
  return ANSWERS[question.is].because(trace, withLanes(trace, question), { right, missed, nameOf });
}

/** Whether a claim is true on this run. A claim is {answer: a question, at_least, at_most, equals: an id or a list}. */
export function holds(trace, { answer: question, at_least: low, at_most: high, equals }) {
  const value = answer(trace, question);
  if (equals !== undefined) return [equals].flat().includes(value);
  return value >= (low ?? -Infinity) && value <= (high ?? Infinity);
}

/** A number in the unit of the question: a share in per cent, steps to half a step. */
const inUnit = ({ unit }, value) => (unit === "%" ? Math.round(100 * value) : Math.round(2 * value) / 2);
/** A value with the unit of its question. */
export const withUnit = ({ unit }, value) => `${value} ${unit === "steps" && value === 1 ? "step" : unit}`;
const optionText = ({ options }, id) => options.find((option) => option.id === id)?.text ?? "something else";

/**
 * Whether a stored value can be a prediction for a question: an earlier edition may have had another kind of
 * question.
 */
export function suits({ kind, options }, value) {
  if (kind === "cells") return Array.isArray(value);
  return kind === "value" ? Number.isFinite(value) : options.some(({ id }) => id === value);
}

/** A prediction, or an answer, in words. nameOf(position) -> its name. */
export function inWords(question, value, nameOf) {
  if (question.kind === "value") return withUnit(question, inUnit(question, value));
  if (question.kind === "choose") return optionText(question, value);
  if (!value.length) return "none";
  const names = value.slice(0, LISTED).map(nameOf);
  return value.length > LISTED ? `${names.join(", ")} and more` : among(names);
}

/**
 * Compares a prediction with the answer.
 * @param {*} predicted undefined if the learner made no prediction
 * @param {function(number): string} nameOf returns the name of a position at the end of the run
 * @param {function(number): string} options.nameThen returns the name of a position at the step of the prediction
 * @param {string} options.why the reason of the answer, a sentence
 * @returns {{right: boolean, text: string}} whether the prediction is right, and the sentences that compare both
 */
export function besides(question, predicted, answer, nameOf, { nameThen = nameOf, why = "" } = {}) {
  if (question.kind === "value" && !Number.isFinite(answer))
    return { right: false, text: "This run has nothing to measure the answer by." };
  const truth = `On this run: ${inWords(question, answer, nameOf)}.`;
  const joined = (...sentences) => [...sentences, why].filter(Boolean).join(" ");
  if (predicted === undefined) return { right: false, text: joined("You made no prediction.", truth) };
  const { right, gap } = compared(question, predicted, answer);
  return { right, text: joined(`You predicted: ${inWords(question, predicted, nameThen)}.`, truth, gap) };
}

/** {right, gap}: whether a prediction is right, and a sentence on its distance from the answer. */
function compared(question, predicted, answer) {
  if (question.kind === "choose") {
    const right = predicted === answer;
    return { right, gap: right ? "You were right." : "You were wrong." };
  }
  if (question.kind === "cells") {
    const hits = predicted.filter((p) => answer.includes(p)).length;
    return {
      right: hits === predicted.length,
      gap: `${hits} of your ${predicted.length} ${hits === 1 ? "is" : "are"} right.`,
    };
  }
  const distance = Math.abs(inUnit(question, predicted) - inUnit(question, answer));
  const far = count(distance, question.unit === "%" ? "point" : "step");
  const way = predicted < answer ? "too low" : "too high";
  const gap = distance ? `You were ${far} ${way}.` : "You were right.";
  return { right: distance <= CLOSE[question.unit], gap };
}
