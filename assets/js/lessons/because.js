// Why a question's answer is what it is: the numbers of the run that it follows from, in a sentence.

import { commitError, count, percent, seconds } from "../dom.js";
import { answer, asks, COUNTS, errorOf, flopsSaved, stepOf, timeSaved, waits } from "./answers.js";

export const among = (list) => [list.slice(0, -1).join(", "), list.at(-1)].filter(Boolean).join(" and ");
const quoted = ({ name }) => `“${name}”`;
const error = (lane) => commitError({ mean: errorOf(lane) });
const big = (n) => n.toLocaleString("en");
/** The reason of an answer that counts: tell(are, of, asked). */
const counted = (is, tell) => (trace, asked) => {
  const { are, of } = COUNTS[is](trace, asked);
  return tell(are, of, asked);
};

/** How sure the model was of what it wrote, and of what it might have written instead. */
function surer(trace, { lane, at }, { right, missed, nameOf }) {
  const sure = (p, t) => percent(lane.confidence[t * lane.n + p]);
  const there = right.map((p) => sure(p, lane.unmaskStep(p, lane.count - 1)));
  const told = `The model gave its likeliest word there ${among(there)} when it wrote it`;
  const { block_length: length = lane.n } = lane.decoder.settings;
  const block = (p) => Math.floor((p - trace.promptLength) / length);
  const later = missed.filter((p) => block(p) > Math.max(...right.map(block)));
  const wait = later.length ? ` A later block waits for its turn: ${among(later.map(nameOf))}.` : "";
  const next = stepOf(at, lane.count) + 1;
  const rest = missed.filter((p) => !later.includes(p)).map((p) => `${sure(p, next)} at ${nameOf(p)}`);
  return `${told}${rest.length ? `; in the first of these steps it gave ${among(rest)}` : ""}.${wait}`;
}

/** When the ones that locked first did so, and when the others. */
function locked(_, { lane }, { right, missed, nameOf }) {
  const when = (p) => lane.lockStep(p, lane.count - 1) + 1;
  const steps = right.map(when);
  const [first, last] = [Math.min(...steps), Math.max(...steps)];
  const others = missed.map((p) => `${nameOf(p)} ${when(p) ? `in step ${when(p)}` : "never"}`);
  const span = first === last ? `step ${first}` : `steps ${first} to ${last}`;
  return `They locked in ${span}${others.length ? `; ${among(others)}` : ""}.`;
}

function waited(trace, asked) {
  const steps = waits(trace, asked);
  if (!steps.length) return "No word locked.";
  const [first, last] = [steps[0], steps.at(-1)].map((n) => count(n, "step"));
  return `Of ${count(steps.length, "word")} that locked the first waited ${first}, the last ${last}.`;
}

/** By a question's answer: its reason on a run. */
const REASONS = {
  written_next: surer,
  leftmost_share: counted("leftmost_share", (are, of) => `It was so in ${are} of ${count(of, "step")}.`),
  still_share: counted(
    "still_share",
    (are, of, { below }) => `${big(are)} of ${big(of)} rows moved by at most ${below}.`,
  ),
  first_locked: locked,
  rest_steps: waited,
  changed_share: counted("changed_share", (are, of) => `It was so at ${are} of ${count(of, "choice")}.`),
  error_rank: (_, { lanes }) =>
    `The commit errors are ${among(lanes.map((lane) => `${error(lane)} nats for ${quoted(lane)}`))}.`,
  error_ratio: (_, { lane, beside }) => `The commit errors are ${error(lane)} and ${error(beside)} nats.`,
  flops_saved: (trace, { lane }) =>
    `${quoted(lane)} did ${percent(1 - flopsSaved(trace, { lane }))} of the FLOPs of ${quoted(trace.reference)}.`,
  time_saved: ({ reference }, { lane }) =>
    `${among([lane, reference].map((each) => `${quoted(each)} took ${seconds(each.seconds)}`))}.`,
  saved_more: (trace, { lane }) =>
    `${quoted(lane)} saved ${percent(flopsSaved(trace, { lane }))} of the FLOPs and ${percent(timeSaved(trace, { lane }))} of the time.`,
  after_end_share: counted("after_end_share", (are, of) =>
    are ? `${are} of ${count(of, "position")} stand there.` : "The text does not end before its last position.",
  ),
  cost_spread: (_, { lanes }) => {
    const cost = ({ steps, ...lane }) =>
      `${percent(steps.at(-1).totalFlops / steps.at(-1).totalBaseline, 1)} by ${quoted(lane)}`;
    return `Of the FLOPs of computing everything, ${among(lanes.map(cost))} were done.`;
  },
};

/** Why the answer is what it is on this run; of positions, also where those that were predicted wrongly stand. */
export function because(trace, asked, predicted, nameOf) {
  const right = answer(trace, asked);
  const missed = Array.isArray(right) ? (predicted ?? []).filter((p) => !right.includes(p)) : [];
  return REASONS[asked.is](trace, asks(trace, asked), { right, missed, nameOf });
}
