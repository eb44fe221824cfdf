// Writes one plain sentence about a step, and names the cell that it mentions. Both depend on the trace alone.

import { count, seconds } from "../dom.js";
import { MASKED } from "../trace/states.js";
import { verdict } from "./verdict.js";

const FILLED = "Each step fills some with tokens: words, or pieces of words.";

/** The sentence before the first step, which explains cells and blanks. It is true at every step. */
export const blanks = ({ fills }) =>
  fills
    ? `The blanks between the given words begin as empty cells, called masked. ${FILLED}`
    : `After the prompt every cell begins as a blank, called masked. ${FILLED}`;

const chapterAt = (chapters, step) => chapters.find((chapter) => chapter.step === step && chapter.stop);

/**
 * The sentence about the cursor's step. Its subject is the first lane that is not the reference.
 * At a chapter (see chapters.js) it is the chapter's sentence, and at the end the verdict.
 */
export function narrate(trace, step, chapters = []) {
  const lane = trace.subject;
  const at = trace.race.reached(lane, step);
  if (at < 0) return blanks(trace);
  if (isOver(trace, step)) return verdict(trace, step);
  const chapter = chapterAt(chapters, step);
  if (chapter) return chapterText(trace, chapter);
  return lane.endsAt(at) ? finished(trace, step) : happens(trace, lane, at, trace.race.whose);
}

/** Whether all lanes have ended at a step of the cursor. */
export const isOver = (trace, step) => trace.lanes.every((lane) => lane.endsAt(trace.race.reached(lane, step)));

/** The first cell that the sentence of a step mentions: {lane, cell}, null if it mentions none. */
export function spokenCell(trace, step, chapters = []) {
  const lane = trace.subject;
  const chapter = chapterAt(chapters, step);
  const at = chapter?.at ?? trace.race.reached(lane, step);
  if (at < 0 || (!chapter && lane.endsAt(at))) return null;
  const { unmasked, locked } = lane.steps[at];
  if (chapter?.name === "Half locked") return null;
  if (chapter?.name === "Fork") return { lane, cell: chapter.position };
  const cell = chapter ? firstLocked(trace, lane, at) : longestStill(trace, lane, locked, at);
  const spoken = cell >= 0 ? cell : unmasked[0];
  return spoken === undefined ? null : { lane, cell: spoken };
}

/** The sentence of a chapter, which begins with its step. */
export const chapterText = (trace, chapter) =>
  `${stepOf(trace.subject, chapter.at, trace.race.whose)}: ${CHAPTERS[chapter.name](trace, trace.subject, chapter)}`;

/** The functions that write the sentences of chapters at which the race stops, by the chapters' names. */
const CHAPTERS = {
  "First lock": (trace, lane, { at }) => firstLock(trace, lane, at),
  "Half locked": ({ n }, lane, { at }) => `half of all tokens are locked, ${lane.steps[at].lockedCount} of ${n}.`,
  Fork: ({ reference }, lane, { words }) => {
    const bare = words.map((word) => word.replace(/[\p{P}]+$/u, "") || word);
    const [laneWord, referenceWord] = bare[0] === bare[1] ? words : bare;
    return `the texts part here: “${lane.name}” has “${laneWord}” where “${reference.name}” has “${referenceWord}”.`;
  },
};

/** The moments of a race that have a sentence, in order: the blanks, and the chapters at which the race stops. */
export function moments(trace, chapters) {
  const stops = chapters.filter(({ stop }) => stop);
  const chapterMoments = stops.map((chapter) => ({ ...chapter, sentence: () => chapterText(trace, chapter) }));
  return [{ step: -1, name: "Blanks", sentence: () => blanks(trace) }, ...chapterMoments];
}

/** The name of a lane's step. It contains the lane's name if the lanes are at different steps. */
const stepOf = (lane, at, whose) => `Step ${at + 1}${whose ? ` of “${lane.name}”` : ""}`;

/** The words for masked tokens among the computed ones, "" if there are none. */
const masksIn = (lane, at) => (lane.row(at).includes(MASKED) ? ", the masked among them" : "");

/** A sentence about a lane's step `at`. whose: the quoted lane if the lanes are at different steps, or "". */
export function happens(trace, lane, at, whose) {
  if (at < 0) return blanks(trace);
  const { unmasked, locked, computed } = lane.steps[at];
  const step = stepOf(lane, at, whose);
  const still = longestStill(trace, lane, locked, at);
  if (still >= 0) return `${step}: ${locks(trace, lane, still, at)} and is computed no more after this step.`;
  const written = unmasked.slice(0, 3).map((p) => trace.word(lane.token(p, at)));
  const what = written.length ? written.join(", ") + (unmasked.length > 3 ? " and more" : "") : "nothing";
  const some = `${computed} of ${lane.n} tokens${masksIn(lane, at)}; ${lane.n - computed} are left out`;
  const rows = computed < lane.n ? some : "every token";
  return `${step}: ${whose ? "it" : `“${lane.name}”`} writes ${what}, and computes ${rows}.`;
}

/** A clause about a token that locks in a step: its word, its age and the reason. */
function locks(trace, lane, position, at) {
  const seen = at - lane.unmaskStep(position, at);
  const since = seen ? `written ${count(seen, "step")} ago` : "just written";
  const why = byRest(lane.decoder, position) ? "has settled: it locks" : "locks";
  return `${trace.word(lane.token(position, at))}, ${since}, ${why}`;
}

/** A clause about the step with the first lock of a token after the prompt. */
function firstLock(trace, lane, at) {
  const others = lane.steps[at].locked.filter((p) => !trace.given[p]).length - 1;
  const which = others ? `with ${count(others, "other")} ` : "";
  const where = trace.fills ? "in the blanks" : "after the prompt";
  const first = locks(trace, lane, firstLocked(trace, lane, at), at);
  return `${first}, ${which}as the first ${where}, and is computed no more after this step.`;
}

/** The position of the earliest written token among those that lock in a step. Tokens of the prompt do not count. */
function firstLocked({ given }, lane, at) {
  const locked = lane.steps[at].locked.filter((p) => !given[p]);
  return locked.reduce((a, b) => (lane.unmaskStep(b, at) < lane.unmaskStep(a, at) ? b : a));
}

/** Whether a position locks by its KL, and not by its age or by an event. */
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

/** A sentence about lanes that have ended and lanes that have not. after: the words for the time. */
export function stillWorking(done, rest, after = "") {
  const names = (lanes) => lanes.map(({ name }) => `“${name}”`).join(" and ");
  const have = done.length > 1 ? "have" : "has";
  const are = rest.length > 1 ? "are" : "is";
  return `${names(done)} ${have} finished${after}; ${names(rest)} ${are} still at work.`;
}

/** The position of the earliest written word among the generated words that lock in a step, -1 if there is none. */
function longestStill({ pieces, given }, lane, locked, at) {
  const isWord = (p) => /\p{L}/u.test(pieces.name(lane.token(p, at)));
  const words = locked.filter((p) => !given[p] && lane.token(p, at) >= 0 && isWord(p));
  return words.length ? words.reduce((a, b) => (lane.unmaskStep(b, at) < lane.unmaskStep(a, at) ? b : a)) : -1;
}
