// One plain sentence for what happens now, and a verdict when all is over. Derived from the trace alone.

import { commitError, count, percent, sameText, seconds } from "./dom.js";

const SAME_SPEED = 0.05; // quicker or slower by less than this is "as fast"

/** What is told at the cursor's step: the first lane beside the reference is its subject. At a chapter (see chapters.js) it is the chapter's own sentence. */
export function narrate(trace, step, chapters = []) {
  if (step < 0) return "Every position after the prompt is masked: the decoders will write them step by step.";
  const over = trace.lanes.every((lane) => lane.endsAt(trace.reached(lane, step)));
  if (over) return verdict(trace, step);
  const lane = subject(trace);
  const chapter = chapters.find((each) => each.step === step && each.text);
  return chapter ? `Step ${trace.reached(lane, step) + 1}: ${chapter.text}` : now(trace, lane, step);
}

/** The lane that the sentences are about. */
export function subject(trace) {
  return trace.lanes.find((lane) => lane !== trace.reference) ?? trace.lanes[0];
}

function now(trace, lane, step) {
  const at = trace.reached(lane, step);
  if (at < 0) return `“${lane.name}” has not finished its first step.`;
  if (lane.endsAt(at)) return finished(trace, step);
  const { unmasked, locked, computed, lockedCount } = lane.steps[at];
  const word = (p) => `“${trace.pieces.name(lane.token(p, at)).trim()}”`;
  const still = longestStill(trace, lane, locked, at);
  if (still >= 0) {
    const seen = at - lane.unmaskStep(still, at);
    const first = lane.steps.slice(0, at).every(({ locked: before }) => !before.some((p) => p >= trace.promptLength));
    const why = byRest(lane.contestant, still) ? " has come to rest, so it" : "";
    const since = seen ? `was written ${count(seen, "step")} ago and${why}` : why.trim() || "was just written and";
    return `Step ${at + 1}: ${word(still)} ${since} is locked and no longer computed${first ? ", the first word to be" : ""}.`;
  }
  const wrote = unmasked.length
    ? `“${lane.name}” writes ${unmasked.slice(0, 3).map(word).join(", ")}${unmasked.length > 3 ? " and more" : ""}`
    : `“${lane.name}” writes nothing`;
  const rest = lockedCount ? `; ${lockedCount} are locked` : "";
  return `Step ${at + 1}: ${wrote}, and computes ${computed} of ${lane.n} positions${rest}.`;
}

/** Whether a position locks because it has come to rest, and not by its age or by hand. */
function byRest({ compute, events = [] }, position) {
  const kind = (compute.lock ?? compute).kind;
  return kind === "lock" && !events.some((event) => event.kind === "rule" || event.position === position);
}

/** Who is through, and who still works. */
function finished(trace, step) {
  const over = (lane) => lane.endsAt(trace.reached(lane, step));
  const done = trace.lanes.filter(over);
  const first = done.reduce((a, b) => (b.seconds < a.seconds ? b : a));
  const rest = trace.lanes.filter((lane) => !over(lane));
  return stillWorking(done, rest, trace.byClock ? ` after ${seconds(first.seconds)}` : "");
}

/** Of lanes that are through, and lanes that are not. */
export function stillWorking(done, rest, after = "") {
  const names = (lanes) => lanes.map(({ name }) => `“${name}”`).join(" and ");
  const have = done.length > 1 ? "have" : "has";
  return `${names(done)} ${have} finished${after}; ${names(rest)} still ${rest.length > 1 ? "work" : "works"}.`;
}

/** Of the generated words that lock in a step the position of the one that was written first, or -1. */
function longestStill({ pieces, promptLength }, lane, locked, at) {
  const isWord = (p) => /\p{L}/u.test(pieces.name(lane.token(p, at)));
  const words = locked.filter((p) => p >= promptLength && lane.token(p, at) >= 0 && isWord(p));
  return words.length ? words.reduce((a, b) => (lane.unmaskStep(b, at) < lane.unmaskStep(a, at) ? b : a)) : -1;
}

/** How it ended for each lane beside the reference, both subjects in each sentence. */
export function verdict(trace, step = trace.count - 1) {
  const { reference, lanes } = trace;
  const others = lanes.filter((lane) => lane !== reference);
  if (!others.length) return alone(trace, lanes[0], step);
  return others.map((lane) => beside(trace, lane, step)).join(" ");
}

function alone(trace, lane, step) {
  const { everyShare, damage } = trace.totals(lane, step);
  const work =
    everyShare < 1 ? `did ${percent(everyShare)} of the work of computing everything` : "computed every position";
  return `“${lane.name}” ${work}.${damaged(damage)}`;
}

function beside(trace, lane, step) {
  const { flopsShare, everyShare, speed, damage, same } = trace.totals(lane, step);
  const fast = timedTogether(lane, trace.reference) ? pace(speed, everyShare) : "; they were not timed side by side";
  const told = `“${lane.name}” did ${percent(flopsShare)} of the work of “${trace.reference.name}”${fast}.`;
  const text = same.whole
    ? "They wrote the same text."
    : `It wrote ${sameText(same)}${same.words && !same.open ? ", then another" : ""}.`;
  return `${told} ${text}${damaged(damage)}`;
}

/** Whether two lanes took turns in the same run: the times of others do not compare. */
const timedTogether = ({ source: a }, { source: b }) => a?.run === b?.run && a?.document === b?.document;

function pace(speed, share) {
  if (!Number.isFinite(speed)) return "";
  if (Math.abs(speed - 1) < SAME_SPEED) return ", in about the same time";
  if (speed > 1) return `, ${speed.toFixed(1)} times as fast`;
  const why = share < 1 ? ": here deciding what to leave out costs more than it saves" : "";
  return `, and took ${(1 / speed).toFixed(1)} times as long${why}`;
}

function damaged(damage) {
  if (!damage?.commits) return "";
  const { changed, commits, nats } = damage;
  if (!nats) return " Nothing was left out that a choice could depend on.";
  return ` Leaving rows out changed the likeliest word at ${changed} of ${count(commits, "choice")} (commit error ${commitError(damage)} nats).`;
}
