// What a learner predicted and which pages were seen. It is kept in this tab, leaves the browser only as a file that
// the learner saves, and is forgotten on request.

import { download } from "./dom.js";

const KEY = "surelock:lessons";

function tabStorage() {
  try {
    return globalThis.sessionStorage ?? null;
  } catch (error) {
    if (error instanceof DOMException) return null; // forbidden, as in a notebook's frame
    throw error;
  }
}

export class AnswerBook {
  constructor(storage = tabStorage()) {
    this.storage = storage;
    this.lessons = {}; // by name: {seen: [page, ...], answers: {page: {question, predicted, answer, right, run}}}
    try {
      this.lessons = JSON.parse(storage?.getItem(KEY) ?? "{}") ?? {};
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error; // torn, or somebody else's
    }
  }

  #of(name) {
    this.lessons[name] ??= { seen: [], answers: {} };
    return this.lessons[name];
  }

  #keep() {
    try {
      this.storage?.setItem(KEY, JSON.stringify(this.lessons));
    } catch (error) {
      if (!(error instanceof DOMException)) throw error; // full: it lives as long as the page does
    }
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
