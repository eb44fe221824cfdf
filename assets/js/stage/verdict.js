// The verdict on a race: the work, the time and the text of every lane, compared with the reference, and the reasons.

import { count, h, seconds, setText } from "../dom.js";
import { touchesOf } from "../trace/touches.js";

const less = (share, what) => {
  const change = Math.round(100 * Math.abs(1 - share));
  if (!change) return `as much ${what}`;
  return `${change} % ${share < 1 ? "less" : "more"} ${what}`;
};

/**
 * {work, why, time, text}: clauses on a lane at a step of the cursor, compared with the reference.
 * A single lane is compared with computing every token. why: the reason for more work, or "".
 */
export function verdictOf(trace, lane, step) {
  const totals = trace.totals(lane, step);
  if (trace.lanes.length === 1) return { work: aloneText(totals), why: "", time: "", text: "" };
  return {
    work: less(totals.flopsShare, "work"),
    // A touched lane writes another text, so its work is not compared.
    why: touchesOf(trace) ? "" : moreWork(trace, lane, step, totals),
    time: timeText(trace, totals),
    text: tale(trace, totals, lane),
  };
}

const aloneText = ({ everyShare }) =>
  everyShare < 1 ? `${less(everyShare, "work")} than computing every token` : "every token was computed";

/** The number of steps of a lane at the cursor's step. */
const stepsDone = (race, lane, step) => lane.clamp(race.reached(lane, step)) + 1;

/** The reason why a lane did more work than the reference, or "". */
function moreWork({ reference, race }, lane, step, { flopsShare, takenBack }) {
  if (!(flopsShare > 1)) return "";
  const laneSteps = stepsDone(race, lane, step);
  const referenceSteps = stepsDone(race, reference, step);
  if (laneSteps <= referenceSteps) return `“${reference.name}” leaves out more`;
  const purpose = takenBack ? ", to write anew what it took back" : "";
  return `it takes ${count(laneSteps, "step")} instead of ${referenceSteps}${purpose}`;
}

function timeText({ others }, { timed, speed, seconds: laneSeconds, against }) {
  if (!timed) return "";
  if (speed !== null) return less(1 / speed, "time");
  const alike = "time: no difference to be seen here";
  if (others.length > 1) return alike; // the seconds are in the lanes' heads
  return `${alike} (${seconds(against)} and ${seconds(laneSeconds)}, one run each)`;
}

/** The place from which words are counted, in words. */
const placeOf = ({ fills }) => (fills ? "of the text" : "after the prompt");

/** A clause on the choices that skipping changed, and on the text. */
function tale(trace, { same: { words, whole, open }, damage }, lane) {
  const place = placeOf(trace);
  if (open) return words ? `up to here they share ${count(words, "word")} ${place}` : "nothing can be compared yet";
  const other = words ? `from word ${words + 1} ${place} on, another text` : "another text";
  const text = whole ? "both wrote the same text" : other;
  if (!damage || touchesOf(trace)) return text; // a touch changed the text, not skipping
  const { changed, commits } = damage;
  // a choice is the likeliest token; with noise, a slightly different posterior can draw another token
  const moved = lane.decoder.settings.temperature ? ", only the draw or the order" : ", only their order";
  const only = changed || whole ? "" : moved;
  return `skipping changed ${changed || "none"} of ${count(commits, "choice")}${only}; ${text}`;
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;

/** The verdict on all lanes in sentences; at most 25 words for two lanes. */
export function verdict(trace, step = trace.count - 1) {
  const sentences = trace.others.map((lane) => {
    const { work, why, time, text } = verdictOf(trace, lane, step);
    const costs = [work, why && `since ${why}`, time].filter(Boolean).join(", ");
    const story = trace.others.length === 1 && text ? ` ${sentence(text)}` : "";
    return `“${lane.name}”: ${costs}.${story}`;
  });
  return sentences.join(" ");
}

/** Shows the verdict as a headline. */
export class Headline {
  constructor() {
    this.node = h("div.sl-verdict", { hidden: true });
  }

  clear() {
    this.node.hidden = true;
  }

  show(trace, step) {
    const { others } = trace;
    const rows = others.map((lane) => verdictOf(trace, lane, step));
    const shown = JSON.stringify([rows, others.map(({ name }) => name)]);
    this.node.hidden = false;
    if (this.shown === shown) return;
    this.shown = shown;
    this.node.classList.toggle("sl-verdict-many", others.length > 1);
    const nodes = rows.map((row) => partsOf(row));
    if (others.length === 1) return this.node.replaceChildren(...nodes[0]);
    this.node.replaceChildren(...others.map((lane, i) => rowOf(trace, lane, nodes[i])));
  }
}

function partsOf({ work, why, time, text }) {
  const done = h("strong.sl-verdict-work", work);
  const smaller = [
    [".sl-verdict-why", why],
    [".sl-verdict-time", time],
    [".sl-verdict-text", text && sentence(text)],
  ];
  const written = smaller.filter(([, words]) => words);
  return [done, ...written.map(([kind, words]) => h(`span${kind}`, words))];
}

function rowOf(trace, lane, nodes) {
  const name = h("span");
  setText(name, lane.name);
  return h(`p.sl-verdict-row.sl-lane-${trace.colourOf(lane) + 1}`, name, nodes);
}
