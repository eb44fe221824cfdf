// The steps of a lesson: the run that the lesson needs, the parts that a page shows, the step at which it stops, and
// the learner's progress. A lesson is data, a file in assets/lessons/. It is about one run at a time.
//
// A lesson names a lane by its id, or as "reference" or "subject" (the lane that the page's sentences are about). It
// names a moment by `at`, the share of the lane's steps that are over at that moment.

import { download } from "../dom.js";
import { Tab } from "../run/tab.js";
import { timedTogether } from "../trace/timing.js";

const KEPT = "lessons";

/** The lessons in the page's document: {lessons: [...], problems: [a sentence for every damaged file]}. */
export function readLessons() {
  const script = document.getElementById("sl-lessons");
  return script ? JSON.parse(script.textContent) : { lessons: [], problems: [] };
}

/** The identity of a run: the time at which it was made, and its seed. */
export const runOf = ({ header, reference }) => `${header.created}/${reference.decoder.settings.seed}`;

/** The lane that a lesson calls `name`; undefined if the run has no such lane. */
export function laneOf(trace, name) {
  if (name === "reference") return trace.reference;
  return name === "subject" ? trace.subject : trace.lane(name);
}

/** The parts of the stage that a page shows. The lanes that it names, or else all lanes, are "lane-1", "lane-2", ... */
export function shownParts(trace, shows) {
  const isLane = (part) => part.startsWith("lane:");
  const named = shows.filter(isLane).map((part) => laneOf(trace, part.slice("lane:".length)));
  const lanes = named.some(Boolean) ? trace.lanes.filter((lane) => named.includes(lane)) : trace.lanes;
  return [...shows.filter((part) => !isLane(part)), ...lanes.map((lane) => `lane-${trace.colourOf(lane) + 1}`)];
}

/** A page's text with names of lanes in place of "{reference}" and "{subject}". */
export const named = (text, trace) => text.replace(/\{(reference|subject)\}/g, (_, lane) => laneOf(trace, lane).name);

/** The last step, from 0, of the first `share` of `count` steps. A share below 0 gives -1: before the first step. */
export const stepOf = (share, count) => (share < 0 ? -1 : Math.max(0, Math.ceil(share * count) - 1));

/**
 * The step, from 0, at which a page stops. A page without a step stops where the page before it does; else undefined.
 */
export function stopOf({ pages }, page, trace) {
  const stopping = pages.slice(0, page + 1).findLast(({ at }) => at !== undefined);
  return stopping && stepOf(stopping.at, trace.race.last + 1);
}

/** The number of the last page with a question before a page. */
export const questionPage = ({ pages }, page) => pages.findLastIndex(({ kind }, i) => kind === "predict" && i < page);

/** The reason why a run does not fit a lesson, a sentence; "" if it fits. */
export function misfit(trace, { needs, own: openLane, timed }) {
  const hasLane = ({ lane, compute, unmask }) => {
    const { decoder } = laneOf(trace, lane) ?? {};
    return decoder?.compute.kind === compute && (unmask?.includes(decoder.unmask.kind) ?? true);
  };
  const lacks = needs.some((need) => !hasLane(need));
  const lacksOpenLane = openLane && !trace.lane(openLane.lane);
  if (lacks || lacksOpenLane) return "This lesson is about other lanes than those of the run on show.";
  if (!trace.complete) return "The run on show is not finished.";
  if (timed && !timedTogether(trace.reference, trace.subject))
    return "The lanes of the run on show were not timed together.";
  const measured = trace.lanes.every((lane) => lane.steps.at(-1)?.damage);
  return measured ? "" : "The commit errors of the run on show were not measured.";
}

/**
 * The lanes of a learner's run: the lanes of the recorded run with another seed and the lesson's settings.
 * @param {object} [chosen] the choices that replace those of the lesson's open lane
 */
export function lanesToRun({ header }, { own: openLane, settings }, seed, chosen) {
  return header.lanes.map((lane) => {
    const changes = lane.id === openLane?.lane ? chosen : {};
    return { ...lane, ...changes, settings: { ...lane.settings, ...settings, seed } };
  });
}

/**
 * @typedef {object} SeenLesson
 * @property {number[]} seen the pages that the learner saw, from 0
 * @property {Object<number, {question, predicted, answer, right, run}>} answers the prediction and the answer, by page
 */

/**
 * The pages that a learner saw, and the learner's predictions. They stay in this tab until the learner deletes them.
 */
export class AnswerBook {
  constructor(tab = new Tab()) {
    this.tab = tab;
    /** @type {Object<string, SeenLesson>} by the lesson's name */
    this.lessons = tab.get(KEPT) ?? {};
  }

  #entry(name) {
    this.lessons[name] ??= { seen: [], answers: {} };
    return this.lessons[name];
  }

  #store() {
    // If the browser refuses to store anything, the answers last as long as the page.
    this.tab.set(KEPT, this.lessons);
  }

  see(name, page) {
    const { seen } = this.#entry(name);
    if (!seen.includes(page)) seen.push(page);
    this.#store();
  }

  /** Adds a prediction, or the answer on the run, to the entry of a page's question. */
  write(name, page, entry) {
    const { answers } = this.#entry(name);
    answers[page] = { ...answers[page], ...entry };
    this.#store();
  }

  answer(name, page) {
    return this.lessons[name]?.answers[page];
  }

  seen(name) {
    return this.lessons[name]?.seen.length ?? 0;
  }

  predictions(name) {
    return Object.values(this.lessons[name]?.answers ?? {}).filter(({ predicted }) => predicted !== undefined).length;
  }

  get empty() {
    return !Object.keys(this.lessons).length;
  }

  forget() {
    this.lessons = {};
    this.#store();
  }

  toDocument() {
    const lessons = Object.entries(this.lessons).map(([name, { seen, answers }]) => ({
      name,
      seen: seen.map((page) => page + 1),
      answers: Object.entries(answers).map(([page, entry]) => ({ page: Number(page) + 1, ...entry })),
    }));
    return { format: "surelock-answers", version: 1, saved: new Date().toISOString(), lessons };
  }

  save() {
    download("surelock-answers.json", "application/json", JSON.stringify(this.toDocument(), null, 1));
  }
}
