// Lessons: the list in its dialog, and the card over the grids that plays one. A lesson is data (assets/lessons/); it is
// about one run at a time, the learner's own or a recorded one, and all answers are computed from that run.

import "../loaded_first.js";
import { explained } from "../below/term.js";
import { count, dialog, h, select, setText } from "../dom.js";
import { field } from "../form/fields.js";
import { page, say } from "../run/state.js";
import { trust } from "../run/trust.js";
import { described } from "../trace/described.js";
import { pinName } from "../trace/prose.js";
import { AnswerBook } from "./answerbook.js";
import { answer, because, holds, laneOf, misfit, named, shownParts, stepOf } from "./answers.js";
import { besides, Question, suits } from "./questions.js";

const KINDS = { look: "Look", predict: "Predict", run: "Run", gap: "See the gap", why: "Why" };
const MOST_SEED = 2 ** 31;
const HERE = "Your run begins in this browser.";

/** What the page brought: {lessons: [...], problems: [a sentence, ...]}. */
function brought() {
  const script = document.getElementById("sl-lessons");
  return script ? JSON.parse(script.textContent) : { lessons: [], problems: [] };
}

const button = (text, action, more = {}) => h("button.sl-small", { onclick: action, ...more }, text);

const runOf = ({ header, reference }) => `${header.created}/${reference.decoder.settings.seed}`;

export class Lessons {
  /** Joins a stage. lessons: tab: see Tab. recorded(name) -> Promise of a trace or null, race(trace, lanes) starts a run
   * like that trace's, or gives a sentence why not: null where there is none. onPlace(name or null, page) is told where the learner is. */
  constructor(stage, { lessons = {} }) {
    const { tab, recorded = async () => null, race = null, onPlace = () => {} } = lessons;
    const found = brought();
    Object.assign(this, { stage, recorded, race, onPlace, lessons: found.lessons, book: new AnswerBook(tab) });
    this.lesson = this.trace = this.own = this.written = null;
    this.list = h("div");
    const close = button("Close", () => this.node.close());
    this.node = dialog("dialog.sl-lessons", { "aria-label": "Lessons" }, h("h2", "Lessons"), this.list, close);
    this.problems = [...found.problems, this.book.tab.problem].filter(Boolean);
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
      const made = `${this.book.predictions(name)} of ${count(questions, "prediction")} made`;
      const more = seen ? `${seen} of ${count(pages.length, "page")} seen, ${made}` : count(questions, "prediction");
      const state = `${count(minutes, "minute")}, ${more}`;
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

  /** Goes where an address says: `lesson` and `page`, which counts from 1. */
  arrive(search) {
    const query = new URLSearchParams(search);
    const name = query.get("lesson");
    if (!name) return;
    const lesson = this.lessons.find((each) => each.name === name);
    if (!lesson) return say(`There is no lesson “${name.slice(0, 40)}” here.`);
    return this.begin(lesson, Number.parseInt(query.get("page") ?? "1", 10) - 1);
  }

  /** Begins a lesson on the run on show, if it is one for it, else on the recorded one. */
  async begin(lesson, number = 0) {
    const { trace: now } = page.now;
    const why = now ? misfit(now, lesson.run) : "There is no run.";
    const recorded = why && (await this.recorded(lesson.run.recorded));
    const trace = why ? recorded?.withLanes(recorded.lanes, recorded.firstReference) : now;
    if (!trace || misfit(trace, lesson.run)) return say(`${why} Its recorded run is not here either.`);
    this.node.close();
    if (!this.open) this.before = this.stage.view.byClock;
    Object.assign(this, { lesson, trace, own: null, awaiting: false });
    this.go(Number.isInteger(number) ? Math.max(0, Math.min(number, lesson.pages.length - 1)) : 0);
    this.card.scrollIntoView({ block: "start" });
  }

  leave() {
    this.lesson = this.own = this.question = null;
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
    const told = explained(named(now.text, this.trace), now.explains ?? []);
    const text = h("p.sl-lesson-text", told);
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
    const step = this.#stepOf(this.page);
    if (step !== undefined) stage.look({ ...stage.view, step });
  }

  #stepOf(page) {
    const at = this.lesson.pages.slice(0, page + 1).findLast((each) => each.at !== undefined)?.at;
    return at === undefined ? undefined : stepOf(at, this.trace.race.last + 1);
  }

  /** Shows what a page speaks of and hides the rest, with what would give a prediction away; without a page shows all. */
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
      const { question: before } = this.lesson.pages[this.#questionPage()];
      return before.kind === "cells" ? answer(this.trace, before.answer) : [];
    }
    return pins ? answer(this.trace, pins) : [];
  }

  #questionPage() {
    return this.lesson.pages.findLastIndex(({ kind }, i) => kind === "predict" && i < this.page);
  }

  /** What was predicted on a page; of positions only on the same run: on another one they are others. */
  #prediction(page) {
    const kept = this.book.answer(this.lesson.name, page);
    const { question } = this.lesson.pages[page];
    if (kept?.question !== question.ask || !suits(question, kept.predicted)) return undefined;
    return question.kind === "cells" && kept.run !== runOf(this.trace) ? undefined : kept.predicted;
  }

  /** What a position is called after a step, in the lane that a question is about. */
  #nameOf(cell, step, question) {
    const lane = laneOf(this.trace, question.answer.lane);
    return pinName(this.trace, cell, { of: [lane], at: () => step });
  }

  #body({ kind, question }) {
    this.question = null;
    if (kind === "predict") return this.#predict(question);
    if (kind === "run") return this.#run();
    const told = kind === "gap" ? this.#gap() : [];
    if (kind === "gap" || kind === "why") told.push(this.#otherwise());
    return told;
  }

  #predict(question) {
    this.question = new Question(question, {
      pins: () => [...page.now.pins.keys()],
      nameOf: (p) => this.#nameOf(p, page.now.step, question),
      given: this.#prediction(this.page),
      onChange: () => this.#looked(),
    });
    return [this.question.node];
  }

  #gap() {
    const page = this.#questionPage();
    const { question } = this.lesson.pages[page];
    const right = answer(this.trace, question.answer);
    const predicted = this.#prediction(page);
    const nameOf = (p) => this.#nameOf(p, Infinity, question);
    const nameThen = (p) => this.#nameOf(p, this.#stepOf(page), question);
    const why = because(this.trace, question.answer, predicted, nameThen);
    const beside = besides(question, predicted, right, nameOf, { nameThen, why });
    const found = { question: question.ask, answer: right, right: beside.right, run: runOf(this.trace) };
    this.book.write(this.lesson.name, page, found);
    return [h("p.sl-lesson-gap", { "data-right": String(beside.right) }, beside.text)];
  }

  #otherwise() {
    const { claim } = this.lesson;
    if (!claim || holds(this.trace, claim)) return null;
    return h("p.sl-lesson-otherwise", claim.otherwise);
  }

  #run() {
    const { own } = this.lesson.run;
    const typed = own?.options[0].compute.kind === "own";
    const races = this.race && (!typed || page.now.sources.includes("browser")); // a server runs no typed rule
    this.choice = null;
    const parts = [];
    if (races && own) {
      const options = own.options.map(({ name }, i) => [i, name]);
      this.choice = select("select.sl-speed", {}, options);
      if (options.length > 1) parts.push(h("label", `${own.label} `, this.choice));
    }
    if (races) parts.push(button("Make my own run", () => this.#race()));
    parts.push(button("Stay with this run", () => this.go(this.page + 1)));
    this.progress = h("p", { role: "status" });
    const editor = races && typed ? this.#editor(own.options[0].compute) : null;
    return [editor, h("div.sl-lesson-tools", parts), this.progress];
  }

  #editor({ code: first }) {
    this.written ??= first;
    trust(this.written);
    return field(described.compute.own.settings.code, this.written, (code) => {
      this.written = code;
    });
  }

  /** The recorded run's prompt and lanes with another seed, and what the lesson sets. */
  async #race() {
    const { run } = this.lesson;
    const base = await this.recorded(run.recorded);
    if (!base || !this.open)
      return setText(this.progress, "The recorded run could not be read, so none like it can be made.");
    const seed = Math.floor(Math.random() * MOST_SEED);
    const option = this.choice && run.own.options[Number(this.choice.value)];
    const typed = option?.compute.kind === "own";
    const chosen = typed ? { ...option, compute: { ...option.compute, code: this.written } } : option;
    const lanes = base.header.lanes.map((each) => ({
      ...each,
      ...(chosen && each.id === run.own.lane ? chosen : {}),
      settings: { ...each.settings, ...run.settings, seed },
    }));
    const why = this.race(base, lanes);
    this.awaiting = !why;
    if (why) setText(this.progress, why);
    else this.#waits(page.now.source === "browser" ? HERE : "Your run begins as soon as the device is free.");
  }

  /** The run that was asked for has this place in the queue, in a sentence. */
  #waits(told) {
    if (this.awaiting && told) setText(this.progress, `${told} You can stay with the recorded run meanwhile.`);
  }

  /** The run that was asked for will not come. */
  #gone() {
    if (!this.awaiting) return;
    this.awaiting = false;
    setText(this.progress, "");
  }

  #shown(trace) {
    if (!this.open) return;
    this.#limit(this.lesson.pages[this.page]);
    if (this.awaiting && trace.race.live) Object.assign(this, { own: trace, awaiting: false, held: false });
  }

  /** Records were appended to the trace on show. The cursor waits where the page stops, so that nothing is given away. */
  #grew(trace) {
    if (!this.open || trace !== this.own) return;
    const { at } = this.lesson.pages[this.page];
    const stop = at === undefined ? Infinity : stepOf(at, trace.steps);
    if (!this.held && trace.count > stop + 1) {
      this.held = true;
      this.stage.look({ step: stop, byClock: false });
    }
    setText(this.progress, `Step ${trace.count} of ${trace.steps} is computed.`);
  }

  #finished(trace) {
    if (!this.open || trace !== this.own) return;
    this.own = null;
    const why = misfit(trace, this.lesson.run);
    if (why) return setText(this.progress, `${why} Make another one, or stay with the recorded one.`);
    this.trace = trace;
    if (this.lesson.pages[this.page].kind === "run") this.go(this.page + 1);
  }

  /** Whether a position is none of those that the page asks for; the question says why. */
  #refuses(cell) {
    if (this.question?.question.kind !== "cells") return false;
    const { trace, step } = page.now;
    const { lane: name, is } = this.question.question.answer;
    const lane = laneOf(trace, name);
    const written = is === "written_next" && lane.token(cell, trace.race.reached(lane, step)) >= 0;
    const why = written ? "A token stands there already: pin a masked position." : "";
    return this.question.refuse(trace.given[cell] ? "That is the prompt: pin another position." : why);
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
    const others = [this.done, skips ? button("Skip", on) : button("Next", on, main), leave];
    return h("div.sl-lesson-steps", back, end || others);
  }

  #predicted() {
    const { ask } = this.lesson.pages[this.page].question;
    const told = { question: ask, predicted: this.question.value, run: runOf(this.trace) };
    this.book.write(this.lesson.name, this.page, told);
    this.go(this.page + 1);
  }
}
