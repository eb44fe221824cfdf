// What a learner predicted and which pages were seen. It is kept in this tab, leaves the browser only as a file that
// the learner saves, and is forgotten on request.

import { download } from "../dom.js";
import { Tab } from "../run/tab.js";

const KEPT = "lessons";

export class AnswerBook {
  constructor(tab = new Tab()) {
    this.tab = tab;
    this.lessons = tab.get(KEPT) ?? {}; // by name: {seen: [page, ...], answers: {page: {question, predicted, answer, right, run}}}
  }

  #of(name) {
    this.lessons[name] ??= { seen: [], answers: {} };
    return this.lessons[name];
  }

  #keep() {
    this.tab.set(KEPT, this.lessons); // where that fails it lives as long as the page does
  }

  see(name, page) {
    const { seen } = this.#of(name);
    if (!seen.includes(page)) seen.push(page);
    this.#keep();
  }

  /** Adds to what is known of a question: what was predicted, what the run showed. */
  write(name, page, entry) {
    const { answers } = this.#of(name);
    answers[page] = { ...answers[page], ...entry };
    this.#keep();
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
    this.#keep();
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
