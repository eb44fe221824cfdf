// One plain sentence for what happens now, and a verdict when all is over. Derived from the trace alone.

import { count, percent, seconds } from "../dom.js";

/** What is told at the cursor's step: the first lane beside the reference is its subject. At a chapter (see chapters.js) it is the chapter's own sentence. */
export function narrate(trace, step, chapters = []) {
  if (step < 0)
    return "After the prompt every word is a blank, called masked. The blanks will be filled in over many steps.";
  const over = trace.lanes.every((lane) => lane.endsAt(trace.race.reached(lane, step)));
  if (over) return verdict(trace, step);
  const lane = subject(trace);
  const at = trace.race.reached(lane, step);
  const chapter = chapters.find((each) => each.step === step && each.text);
  if (chapter) return `${stepOf(lane, at, trace.race.whose)}: ${chapter.text}`;
  return lane.endsAt(at) ? finished(trace, step) : happens(trace, lane, at, trace.race.whose);
}

/** A lane's own step; said whose, where the lanes stand at different ones. */
const stepOf = (lane, at, whose) => `Step ${at + 1}${whose ? ` of “${lane.name}”` : ""}`;

/** The lane that the sentences are about. */
export const subject = ({ others: [first] }) => first;

/** What a lane does in its step `at`; whose: whether the lanes stand at different steps. */
export function happens(trace, lane, at, whose) {
  if (at < 0) return `“${lane.name}” has not finished its first step.`;
  const { unmasked, locked, computed, lockedCount } = lane.steps[at];
  const word = (p) => trace.word(lane.token(p, at));
  const still = longestStill(trace, lane, locked, at);
  if (still >= 0) {
    const seen = at - lane.unmaskStep(still, at);
    const first = lane.steps.slice(0, at).every(({ locked: before }) => !before.some((p) => p >= trace.promptLength));
    const why = byRest(lane.decoder, still) ? " has come to rest, so it" : "";
    const since = seen ? `was written ${count(seen, "step")} ago and${why}` : why.trim() || "was just written and";
    return `${stepOf(lane, at, whose)}: ${word(still)} ${since} is locked${first ? ", the first word that is" : " and"} no longer computed.`;
  }
  const who = whose ? "it" : `“${lane.name}”`;
  const wrote = unmasked.length
    ? `${who} writes ${unmasked.slice(0, 3).map(word).join(", ")}${unmasked.length > 3 ? " and more" : ""}`
    : `${who} writes nothing`;
  const rest = lockedCount ? `; ${lockedCount} ${lockedCount === 1 ? "is" : "are"} locked` : "";
  return `${stepOf(lane, at, whose)}: ${wrote}, and computes ${computed} of ${lane.n} words${rest}.`;
}

/** Whether a position locks because it has come to rest, and not by its age or by hand. */
function byRest({ compute, events = [] }, position) {
  const kind = (compute.lock ?? compute).kind;
  return kind === "lock" && !events.some((event) => event.kind === "rule" || event.position === position);
}

function finished(trace, step) {
  const over = (lane) => lane.endsAt(trace.race.reached(lane, step));
  const done = trace.lanes.filter(over);
  const timed = done.filter((lane) => trace.race.clocked.includes(lane));
  const rest = trace.lanes.filter((lane) => !over(lane));
  const after = ` after ${seconds(Math.min(...timed.map((lane) => lane.seconds)))}`;
  return stillWorking(done, rest, trace.race.byClock && timed.length ? after : "");
}

export function stillWorking(done, rest, after = "") {
  const names = (lanes) => lanes.map(({ name }) => `“${name}”`).join(" and ");
  const [have, are] = [done.length > 1 ? "have" : "has", rest.length > 1 ? "are" : "is"];
  return `${names(done)} ${have} finished${after}; ${names(rest)} ${are} still at work.`;
}

/** Of the generated words that lock in a step the position of the one that was written first, or -1. */
function longestStill({ pieces, promptLength }, lane, locked, at) {
  const isWord = (p) => /\p{L}/u.test(pieces.name(lane.token(p, at)));
  const words = locked.filter((p) => p >= promptLength && lane.token(p, at) >= 0 && isWord(p));
  return words.length ? words.reduce((a, b) => (lane.unmaskStep(b, at) < lane.unmaskStep(a, at) ? b : a)) : -1;
}

/** How it ended for each lane beside the reference, both subjects in each sentence: at most 25 words a lane. */
export function verdict(trace, step = trace.count - 1) {
  const { lanes, others, reference } = trace;
  if (lanes.length === 1) return alone(trace, lanes[0], step);
  return others.map((lane, i) => beside(trace, lane, step, i ? "" : ` of “${reference.name}”`)).join(" ");
}

function alone(trace, lane, step) {
  const { everyShare } = trace.totals(lane, step);
  const work =
    everyShare < 1 ? `did ${percent(everyShare)} of the work of computing everything` : "computed everything";
  return `“${lane.name}” ${work}.`;
}

/** whose: whose work it is a share of, where that is not said already. */
function beside(trace, lane, step, whose) {
  const { flopsShare, timed, speed, same } = trace.totals(lane, step);
  const time = timed ? pace(speed) : "";
  return `“${lane.name}” did ${percent(flopsShare)} of the work${whose}${time}. ${tale(same)}`;
}

function pace(speed) {
  return speed === null ? "; times too close to tell" : ` in ${percent(1 / speed)} of the time`;
}

function tale({ words, whole, open }) {
  if (whole) return "Both wrote the same text.";
  if (open) return words ? `Up to here they share ${count(words, "word")}.` : "Nothing can be compared yet.";
  return words ? `From the ${ordinal(words + 1)} word on it tells another story.` : "It tells another story.";
}

/** 1st, 2nd, 3rd, 4th, 11th, 21st. */
export function ordinal(n) {
  const teen = n % 100 >= 11 && n % 100 <= 13;
  return `${n}${(!teen && { 1: "st", 2: "nd", 3: "rd" }[n % 10]) || "th"}`;
}
