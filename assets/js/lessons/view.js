// The view of the lessons: the dialog that lists them, the card over the grids that plays a lesson, and the controls
// of a question.

import "../loaded_first.js";
import { explained } from "../below/term.js";
import { count, dialog, h, isTouch, select, setText } from "../dom.js";
import { field } from "../form/fields.js";
import { page, say } from "../run/state.js";
import { trust } from "../run/trust.js";
import { described } from "../trace/described.js";
import { pinName } from "../trace/prose.js";
import { among, answer, because, besides, holds, suits, withUnit } from "./grading.js";
import {
  AnswerBook,
  laneOf,
  lanesToRun,
  misfit,
  named,
  questionPage,
  readLessons,
  runOf,
  shownParts,
  stepOf,
  stopOf,
} from "./steps.js";

const KINDS = { look: "Look", predict: "Predict", run: "Run", gap: "See the gap", why: "Why" };
const MOST_SEED = 2 ** 31;
const HERE = "Your run begins in this browser.";

const button = (text, action, more = {}) => h("button.sl-small", { onclick: action, ...more }, text);

/** Whether an option has a rule that the learner types. */
const isTyped = (option) => option?.compute.kind === "own";

/** The lessons of a stage. */
export class Lessons {
  /**
   * Adds the lessons to a stage.
   * @param {Stage} stage
   * @param {Tab} lessons.tab
   * @param {function(string): Promise<Trace?>} lessons.recorded reads a recorded run by its name
   * @param {?function(Trace, Lane[]): ?string} lessons.race starts a run with a trace's prompt and these lanes, and
   *   returns a sentence if the run cannot start; null on a page that cannot compute
   * @param {function(?string, number)} lessons.onPlace is called with the name of the lesson and the number of its page
   */
  constructor(stage, { lessons = {} }) {
    const { tab, recorded = async () => null, race = null, onPlace = () => {} } = lessons;
    const loaded = readLessons();
    Object.assign(this, { stage, recorded, race, onPlace, lessons: loaded.lessons, book: new AnswerBook(tab) });
    this.lesson = this.trace = this.learnersTrace = this.written = null;
    this.list = h("div");
    const close = button("Close", () => this.node.close());
    this.node = dialog("dialog.sl-lessons", { "aria-label": "Lessons" }, h("h2", "Lessons"), this.list, close);
    this.problems = [...loaded.problems, this.book.tab.problem].filter(Boolean);
    this.card = h("section.sl-lesson", { hidden: true, "aria-label": "Lesson" });
    this.draw();
    page.follow(["waiting"], ({ waiting }) => this.#waits(waiting));
    page.follow(["forgotten"], () => this.#gone());
    page.follow(["laid"], ({ trace }) => trace && this.#shown(trace));
    page.follow(["records"], ({ trace }) => trace && this.#grew(trace));
    page.follow(["ended"], ({ ended, trace }) => ended && ended === trace && this.#finished(trace));
    page.follow(["looked"], () => this.#looked());
    stage.teller.node.after(this.card);
    stage.root.append(this.node);
  }

  draw() {
    const items = this.lessons.map((lesson) => {
      const { name, title, minutes, number, pages } = lesson;
      const questions = pages.filter(({ kind }) => kind === "predict").length;
      const seen = this.book.seen(name);
      const all = count(questions, "prediction");
      const soFar = `${seen} of ${count(pages.length, "page")} seen, ${this.book.predictions(name)} of ${all} made`;
      const state = `${count(minutes, "minute")}, ${seen ? soFar : all}`;
      const begins = { "aria-label": `${seen ? "Go on with" : "Begin"} lesson: ${title}` };
      const begin = button(seen ? "Go on" : "Begin", () => this.begin(lesson), begins);
      return h(
        "li",
        h("b.sl-lesson-number", `${number}`),
        h("span", h("strong", title), h("span.sl-hint", state)),
        begin,
      );
    });
    const kept = "Predictions stay in this tab and go nowhere. Save them as a file to keep or to hand in.";
    const tools = [
      button("Save my answers", () => this.book.save(), { disabled: this.book.empty }),
      button("Forget them", () => this.#forget(), { disabled: this.book.empty }),
    ];
    this.list.replaceChildren(
      ...this.problems.map((text) => h("p.sl-lesson-problem", text)),
      h("ol.sl-lesson-list", items),
      h("p.sl-hint", kept),
      h("p.sl-lesson-tools", tools),
    );
  }

  choose() {
    if (!this.node.open) this.node.showModal();
  }

  #forget() {
    this.book.forget();
    this.draw();
  }

  get open() {
    return this.lesson !== null;
  }

  /** Opens the page that an address names by its parameters `lesson` and `page` (from 1). */
  arrive(search) {
    const query = new URLSearchParams(search);
    const name = query.get("lesson");
    if (!name) return;
    const lesson = this.lessons.find((known) => known.name === name);
    if (!lesson) return say(`There is no lesson “${name.slice(0, 40)}” here.`);
    return this.begin(lesson, Number.parseInt(query.get("page") ?? "1", 10) - 1);
  }

  /** Begins a lesson with the run on show if the run fits the lesson, else with the recorded run. */
  async begin(lesson, number = 0) {
    const { trace: now } = page.now;
    const why = now ? misfit(now, lesson.run) : "There is no run.";
    const recorded = why && (await this.recorded(lesson.run.recorded));
    const trace = why ? recorded?.withLanes(recorded.lanes, recorded.firstReference) : now;
    if (!trace || misfit(trace, lesson.run)) return say(`${why} Its recorded run is not here either.`);
    this.node.close();
    if (!this.open) this.before = this.stage.view.byClock;
    Object.assign(this, { lesson, trace, learnersTrace: null, awaiting: false });
    const last = lesson.pages.length - 1;
    this.go(Number.isInteger(number) ? Math.max(0, Math.min(number, last)) : 0);
    this.card.scrollIntoView({ block: "start" });
  }

  leave() {
    this.lesson = this.learnersTrace = this.question = null;
    this.awaiting = false;
    this.card.hidden = true;
    this.card.replaceChildren();
    this.#limit();
    this.stage.look({ byClock: this.before });
    this.draw();
    this.onPlace(null);
    this.stage.lessonsButton.focus();
  }

  go(page) {
    const { name, title, number, pages } = this.lesson;
    this.page = page;
    this.book.see(name, page);
    this.#show();
    const now = pages[page];
    this.body = h("div.sl-lesson-body", this.#body(now));
    const heading = h("h3", { tabindex: -1 }, `Lesson ${number}: ${title}`);
    const place = `Page ${page + 1} of ${pages.length}`;
    const bar = h("progress", { max: pages.length, value: page + 1, "aria-label": place });
    const words = explained(named(now.text, this.trace), now.explains ?? []);
    const text = h("p.sl-lesson-text", words);
    const parts = now.kind === "gap" ? [this.body, text] : [text, this.body];
    parts[0].prepend(h("strong.sl-lesson-kind", KINDS[now.kind]));
    this.card.replaceChildren(h("header", heading, h("span.sl-hint", place), bar), ...parts, this.#steps());
    this.card.hidden = false;
    heading.focus({ preventScroll: true });
    this.draw();
    this.onPlace(name, page);
  }

  #show() {
    const { stage, trace } = this;
    const { pages } = this.lesson;
    const { kind, by_clock: byClock = false, pins, question } = pages[this.page];
    if (page.now.trace !== trace) stage.show(trace, { label: "In this lesson:" });
    this.#limit(pages[this.page]);
    stage.look({ byClock, pins: this.#pins(kind, pins, question) });
    const step = stopOf(this.lesson, this.page, this.trace);
    if (step !== undefined) stage.look({ ...stage.view, step });
  }

  /**
   * Shows only the parts of the stage that a page names, and hides what would reveal the answer. Without a page: all.
   */
  #limit({ shows, question } = {}) {
    const { trace } = page.now;
    if (!shows) return page.set({ lesson: null });
    const parts = shownParts(trace, shows);
    const lanes = trace.lanes.filter((lane) => parts.includes(`lane-${trace.colourOf(lane) + 1}`)).map(({ id }) => id);
    page.set({ lesson: { shows, parts, lanes, guess: question?.kind, refuses: (cell) => this.#refuses(cell) } });
  }

  #pins(kind, pins, question) {
    if (question?.kind === "cells") return this.#prediction(this.page) ?? [];
    if (kind === "gap") {
      const { question: before } = this.lesson.pages[questionPage(this.lesson, this.page)];
      return before.kind === "cells" ? answer(this.trace, before.answer) : [];
    }
    return pins ? answer(this.trace, pins) : [];
  }

  /**
   * The prediction on a page, or undefined. Predicted positions belong to one run, since other runs have other
   * tokens.
   */
  #prediction(page) {
    const kept = this.book.answer(this.lesson.name, page);
    const { question } = this.lesson.pages[page];
    if (kept?.question !== question.ask || !suits(question, kept.predicted)) return undefined;
    return question.kind === "cells" && kept.run !== runOf(this.trace) ? undefined : kept.predicted;
  }

  /** The name of a position after a step, in the lane that a question is about. */
  #nameOf(cell, step, question) {
    const lane = laneOf(this.trace, question.answer.lane);
    return pinName(this.trace, cell, { of: [lane], at: () => step });
  }

  #body({ kind, question }) {
    this.question = null;
    if (kind === "predict") return this.#predict(question);
    if (kind === "run") return this.#run();
    const paragraphs = kind === "gap" ? this.#gap() : [];
    if (kind === "gap" || kind === "why") paragraphs.push(this.#otherwise());
    return paragraphs;
  }

  #predict(question) {
    this.question = new Question(question, {
      pins: () => [...page.now.pins.keys()],
      nameOf: (p) => this.#nameOf(p, page.now.step, question),
      predicted: this.#prediction(this.page),
      onChange: () => this.#looked(),
    });
    return [this.question.node];
  }

  #gap() {
    const page = questionPage(this.lesson, this.page);
    const { question } = this.lesson.pages[page];
    const right = answer(this.trace, question.answer);
    const predicted = this.#prediction(page);
    const nameOf = (p) => this.#nameOf(p, Infinity, question);
    const nameThen = (p) => this.#nameOf(p, stopOf(this.lesson, page, this.trace), question);
    const why = because(this.trace, question.answer, predicted, nameThen);
    const beside = besides(question, predicted, right, nameOf, { nameThen, why });
    const entry = { question: question.ask, answer: right, right: beside.right, run: runOf(this.trace) };
    this.book.write(this.lesson.name, page, entry);
    return [h("p.sl-lesson-gap", { "data-right": String(beside.right) }, beside.text)];
  }

  #otherwise() {
    const { claim } = this.lesson;
    if (!claim || holds(this.trace, claim)) return null;
    return h("p.sl-lesson-otherwise", claim.otherwise);
  }

  #run() {
    const { own: openLane } = this.lesson.run;
    const typed = isTyped(openLane?.options[0]);
    const races = this.race && (!typed || page.now.sources.includes("browser")); // a server runs no typed rule
    this.choice = null;
    const parts = [];
    if (races && openLane) {
      const options = openLane.options.map(({ name }, i) => [i, name]);
      this.choice = select("select.sl-speed", {}, options);
      if (options.length > 1) parts.push(h("label", `${openLane.label} `, this.choice));
    }
    if (races) parts.push(button("Make my own run", () => this.#race()));
    parts.push(button("Stay with this run", () => this.go(this.page + 1)));
    this.progress = h("p", { role: "status" });
    const editor = races && typed ? this.#editor(openLane.options[0].compute) : null;
    return [editor, h("div.sl-lesson-tools", parts), this.progress];
  }

  #editor({ code: first }) {
    this.written ??= first;
    trust(this.written);
    return field(described.compute.own.settings.code, this.written, (code) => {
      this.written = code;
    });
  }

  /** Starts a run with the prompt and the lanes of the recorded run, another seed, and the settings of the lesson. */
  async #race() {
    const { run } = this.lesson;
    const base = await this.recorded(run.recorded);
    if (!base || !this.open)
      return setText(this.progress, "The recorded run could not be read, so none like it can be made.");
    const seed = Math.floor(Math.random() * MOST_SEED);
    const option = this.choice && run.own.options[Number(this.choice.value)];
    const chosen = isTyped(option) ? { ...option, compute: { ...option.compute, code: this.written } } : option;
    const why = this.race(base, lanesToRun(base, run, seed, chosen));
    this.awaiting = !why;
    if (why) setText(this.progress, why);
    else this.#waits(page.now.source === "browser" ? HERE : "Your run begins as soon as the device is free.");
  }

  /** Shows the place of the learner's run in the queue. place: a sentence. */
  #waits(place) {
    if (this.awaiting && place) setText(this.progress, `${place} You can stay with the recorded run meanwhile.`);
  }

  /** Called when the learner's run was given up before it began. */
  #gone() {
    if (!this.awaiting) return;
    this.awaiting = false;
    setText(this.progress, "");
  }

  #shown(trace) {
    if (!this.open) return;
    this.#limit(this.lesson.pages[this.page]);
    if (this.awaiting && trace.race.live) Object.assign(this, { learnersTrace: trace, awaiting: false, held: false });
  }

  /** Called when the trace has grown. The cursor waits at the page's step, so that the answer stays hidden. */
  #grew(trace) {
    if (!this.open || trace !== this.learnersTrace) return;
    const { at } = this.lesson.pages[this.page];
    const stop = at === undefined ? Infinity : stepOf(at, trace.steps);
    if (!this.held && trace.count > stop + 1) {
      this.held = true;
      this.stage.look({ step: stop, byClock: false });
    }
    setText(this.progress, `Step ${trace.count} of ${trace.steps} is computed.`);
  }

  #finished(trace) {
    if (!this.open || trace !== this.learnersTrace) return;
    this.learnersTrace = null;
    const why = misfit(trace, this.lesson.run);
    if (why) return setText(this.progress, `${why} Make another one, or stay with the recorded one.`);
    this.trace = trace;
    if (this.lesson.pages[this.page].kind === "run") this.go(this.page + 1);
  }

  /** Whether a position cannot be pinned as a prediction. The question then shows the reason. */
  #refuses(cell) {
    if (this.question?.question.kind !== "cells") return false;
    const { trace, step } = page.now;
    const { lane: name, is } = this.question.question.answer;
    const lane = laneOf(trace, name);
    const written = is === "written_next" && lane.token(cell, trace.race.reached(lane, step)) >= 0;
    if (trace.given[cell]) return this.question.refuse("That is the prompt: pin another position.");
    return this.question.refuse(written ? "A token stands there already: pin a masked position." : "");
  }

  #looked() {
    if (!this.question) return;
    this.question.looked();
    this.done.disabled = this.question.value === undefined;
  }

  #steps() {
    const { pages } = this.lesson;
    const last = this.page === pages.length - 1;
    const { kind } = pages[this.page];
    const on = () => this.go(this.page + 1);
    const main = { class: "sl-small sl-lesson-main" };
    const back = button("Back", () => this.go(this.page - 1), { disabled: this.page === 0 });
    const leave = button("Leave the lesson", () => this.leave(), { class: "sl-small sl-lesson-leave" });
    this.done = null;
    if (kind === "predict") {
      this.done = button("This is my prediction", () => this.#predicted(), main);
      this.done.disabled = this.question.value === undefined;
    }
    const end = last && button("End the lesson", () => this.leave(), main);
    const skips = kind === "predict" || kind === "run";
    const forward = skips ? button("Skip", on) : button("Next", on, main);
    return h("div.sl-lesson-steps", back, end || [this.done, forward, leave]);
  }

  #predicted() {
    const { ask } = this.lesson.pages[this.page].question;
    const entry = { question: ask, predicted: this.question.value, run: runOf(this.trace) };
    this.book.write(this.lesson.name, this.page, entry);
    this.go(this.page + 1);
  }
}

/** The controls of a question. `value` is the prediction, undefined before the learner has made one. */
class Question {
  /**
   * @param {function(): number[]} options.pins returns the positions that are pinned on the stage
   * @param {function(number): string} options.nameOf returns the name of a position
   * @param {*} options.predicted an earlier prediction, or undefined
   * @param {function()} options.onChange is called when `value` may have changed
   */
  constructor(question, { pins, nameOf, predicted, onChange }) {
    Object.assign(this, { question, pins, nameOf, value: predicted });
    const set = (value) => {
      this.value = value;
      onChange();
    };
    const controls = { cells: () => this.#cells(), value: () => this.#number(set), choose: () => this.#choices(set) };
    this.node = h("div.sl-question", controls[question.kind]());
    this.looked();
  }

  looked() {
    const { kind, count } = this.question;
    if (kind !== "cells") return;
    const pins = this.pins();
    this.value = pins.length === count ? pins : undefined;
    const names = pins.length ? `: ${among(pins.map(this.nameOf))}` : "";
    const hint = pins.length > count ? " Unpin one." : "";
    setText(this.status, `${pins.length} of ${count} pinned${names}.${hint}`);
  }

  /** Shows the reason why a cell cannot be pinned, "" if it can. Returns whether it cannot be pinned. */
  refuse(why) {
    if (why) setText(this.status, why);
    return Boolean(why);
  }

  #cells() {
    const how = isTouch() ? "Tap a cell twice." : "Click a cell, or move to it with the arrow keys and press Enter.";
    const hint = `${how} Once more takes the pin away.`;
    this.status = h("p", { role: "status" });
    return [h("p", h("strong", this.question.ask)), h("p.sl-hint", hint), this.status];
  }

  #number(set) {
    const { low, high, unit, ask } = this.question;
    const scale = unit === "%" ? 100 : 1;
    const output = h("output", "move the slider");
    const write = () => setText(output, withUnit(this.question, Number(range.value)));
    const value = this.value === undefined ? (low + high) / 2 : scale * this.value;
    const range = h("input", { type: "range", min: low, max: high, step: 1, value });
    range.addEventListener("input", () => {
      write();
      set(Number(range.value) / scale);
    });
    if (this.value !== undefined) write();
    return h("label.sl-question-value", h("strong", ask), h("span", range, output));
  }

  #choices(set) {
    const { ask, options } = this.question;
    const option = ({ id, text }) => {
      const chosen = { checked: this.value === id, onchange: () => set(id) };
      return h("label", h("input", { type: "radio", name: "sl-question", value: id, ...chosen }), h("span", text));
    };
    return h("fieldset", h("legend", h("strong", ask)), options.map(option));
  }
}
