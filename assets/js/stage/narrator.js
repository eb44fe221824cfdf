// One plain sentence for what happens now, and a verdict when all is over. Derived from the trace alone.

import { count, percent, seconds } from "../dom.js";

/** The first sentence: what the all-masked grid shows, and what a cell is. It holds at every step. */
export const BLANKS =
  "After the prompt every cell begins as a blank, called masked. Each step fills some with tokens: words, or pieces of words.";

/** The sentence of the cursor's step: the first lane beside the reference is its subject. At a chapter (see chapters.js) it is the chapter's own. */
export function narrate(trace, step, chapters = []) {
  const lane = trace.subject;
  const at = trace.race.reached(lane, step);
  if (at < 0) return BLANKS;
  if (trace.lanes.every((each) => each.endsAt(trace.race.reached(each, step)))) return verdict(trace, step);
  const chapter = chapters.find((each) => each.step === step && each.stop);
  if (chapter) return chapterText(trace, chapter);
  return lane.endsAt(at) ? finished(trace, step) : happens(trace, lane, at, trace.race.whose);
}

/** A chapter's sentence, with the step in which it was so. */
export const chapterText = (trace, chapter) =>
  `${stepOf(trace.subject, chapter.at, trace.race.whose)}: ${CHAPTERS[chapter.name](trace, trace.subject, chapter)}`;

/** By the name of a chapter that stops the race, what it tells. */
const CHAPTERS = {
  "First lock": (trace, lane, { at }) => firstLock(trace, lane, at),
  "Half locked": ({ n }, lane, { at }) => `half of all tokens are locked, ${lane.steps[at].lockedCount} of ${n}.`,
  Fork: ({ reference }, lane, { words }) => {
    const bare = words.map((word) => word.replace(/[\p{P}]+$/u, "") || word);
    const [own, other] = bare[0] === bare[1] ? words : bare;
    return `the texts part here: “${lane.name}” has “${own}” where “${reference.name}” has “${other}”.`;
  },
};

/** What is told of a race as far as it has come, in order: the blanks, the chapters that stop it, the verdict once all is
 * measured. */
export function moments(trace, found) {
  const stops = found.filter(({ stop }) => stop);
  const own = stops.map((each) => ({ ...each, sentence: () => chapterText(trace, each) }));
  const end = { step: trace.race.last, name: "Verdict", sentence: () => verdict(trace, trace.race.last) };
  return [
    { step: -1, name: "Blanks", sentence: () => BLANKS },
    ...own,
    ...(trace.complete && !trace.race.live ? [end] : []),
  ];
}

/** A lane's own step; said whose, where the lanes stand at different ones. */
const stepOf = (lane, at, whose) => `Step ${at + 1}${whose ? ` of “${lane.name}”` : ""}`;

/** What a lane does in its step `at`; whose: whether the lanes stand at different steps. */
export function happens(trace, lane, at, whose) {
  if (at < 0) return BLANKS;
  const { unmasked, locked, computed } = lane.steps[at];
  const step = stepOf(lane, at, whose);
  const still = longestStill(trace, lane, locked, at);
  if (still >= 0) return `${step}: ${locks(trace, lane, still, at)} and is no longer computed.`;
  const written = unmasked.slice(0, 3).map((p) => trace.word(lane.token(p, at)));
  const what = written.length ? written.join(", ") + (unmasked.length > 3 ? " and more" : "") : "nothing";
  const rows = computed < lane.n ? `${computed} of ${lane.n} tokens; ${lane.n - computed} are left out` : "every token";
  return `${step}: ${whose ? "it" : `“${lane.name}”`} writes ${what}, and computes ${rows}.`;
}

/** A token that locks in a step: which one it is, how long it stood, and why. */
function locks(trace, lane, position, at) {
  const seen = at - lane.unmaskStep(position, at);
  const since = seen ? `written ${count(seen, "step")} ago` : "just written";
  const why = byRest(lane.decoder, position) ? "has come to rest: it locks" : "locks";
  return `${trace.word(lane.token(position, at))}, ${since}, ${why}`;
}

/** The first lock of a token after the prompt, in its step. */
function firstLock(trace, lane, at) {
  const locked = lane.steps[at].locked.filter((p) => !trace.given[p]);
  const first = locked.reduce((a, b) => (lane.unmaskStep(b, at) < lane.unmaskStep(a, at) ? b : a));
  const which = locked.length > 1 ? `with ${count(locked.length - 1, "other")} ` : "";
  return `${locks(trace, lane, first, at)}, ${which}as the first after the prompt, and is no longer computed.`;
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
function longestStill({ pieces, given }, lane, locked, at) {
  const isWord = (p) => /\p{L}/u.test(pieces.name(lane.token(p, at)));
  const words = locked.filter((p) => !given[p] && lane.token(p, at) >= 0 && isWord(p));
  return words.length ? words.reduce((a, b) => (lane.unmaskStep(b, at) < lane.unmaskStep(a, at) ? b : a)) : -1;
}

/** How it ended for each lane beside the reference: at most 25 words; of several lanes their work alone. */
export function verdict(trace, step = trace.count - 1) {
  const { lanes, others } = trace;
  if (lanes.length === 1) return alone(trace, lanes[0], step);
  if (others.length === 1) return beside(trace, others[0], step);
  return others.map((lane) => `${work(trace.totals(lane, step), lane)}.`).join(" ");
}

const work = ({ flopsShare }, { name }) => `“${name}” did ${percent(flopsShare)} of the work`;

function alone(trace, lane, step) {
  const { everyShare } = trace.totals(lane, step);
  const work =
    everyShare < 1 ? `did ${percent(everyShare)} of the work of computing everything` : "computed everything";
  return `“${lane.name}” ${work}.`;
}

function beside(trace, lane, step) {
  const totals = trace.totals(lane, step);
  const { timed, speed, same, damage } = totals;
  return `${work(totals, lane)}${timed ? pace(speed) : ""}. ${tale(same, damage, lane)}`;
}

function pace(speed) {
  return speed === null ? "; times too close to tell" : ` in ${percent(1 / speed)} of the time`;
}

/** The choices that skipping changed, joined to what became of the text. */
function tale({ words, whole, open }, damage, lane) {
  if (open) return words ? `Up to here they share ${count(words, "word")}.` : "Nothing can be compared yet.";
  const other = words ? `from word ${words + 1} on, another story` : "another story";
  const text = whole ? "both wrote the same text" : other;
  if (!damage) return `${text[0].toUpperCase()}${text.slice(1)}.`;
  const { changed, commits } = damage;
  // a choice is the likeliest token; with noise another one can be drawn from a posterior that has moved a little
  const moved = lane.decoder.settings.temperature ? ", only the draw or the order" : ", only their order";
  const only = changed || whole ? "" : moved;
  return `Skipping changed ${changed || "none"} of ${count(commits, "choice")}${only}; ${text}.`;
}
