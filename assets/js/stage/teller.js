// The one slow narrator: the moments of a race in their order, each long enough to be read, and between them now and then
// what happens. It slows no run: a moment that was missed has its turn later.

import { h, setText } from "../dom.js";

const LEAST_MS = 2500; // that a sentence stands
const BETWEEN_MS = 4000; // before one that is no moment's

export class Teller {
  constructor() {
    this.text = h("p.sl-narrator");
    this.node = h("div.sl-narrator-box", this.text);
    this.load();
  }

  /** Another race; its first step to come is where it begins. */
  load() {
    clearTimeout(this.timer);
    Object.assign(this, { since: -Infinity, step: null, shown: null, passed: new Set(), moments: [] });
  }

  /** How long the sentence that stands has still to stand, in milliseconds. */
  get left() {
    return Math.max(0, this.since + LEAST_MS - performance.now());
  }

  /** How long until every moment up to the present step has stood, in milliseconds. */
  get rest() {
    return this.left + LEAST_MS * this.#due.length;
  }

  get #due() {
    return this.moments.filter(({ step, name }) => step <= this.step && !this.passed.has(name));
  }

  /** The cursor's step. moments: [{step, name, sentence()}, ...] in order. now(): the step's own sentence. held: a hand has
   * put the cursor there; moves: it goes on by itself. */
  follow(step, { moments, now, held, moves }) {
    const arrives = this.step === null && step >= 0;
    if (step < this.step || arrives || held) this.#pass(moments, held || arrives ? step : step - 1);
    Object.assign(this, { step, moments, now, moves });
    if (held || (arrives && !moves)) this.#show(now(), null);
    else this.#tell();
  }

  /** What is behind the cursor needs no telling any more, what is before it does. */
  #pass(moments, step) {
    this.passed = new Set(moments.filter((each) => each.step <= step).map(({ name }) => name));
  }

  #tell() {
    clearTimeout(this.timer);
    const [next] = this.#due;
    if (this.shown && !next) setText(this.text, this.shown.sentence()); // more may be known of it by now
    if (this.left) this.timer = setTimeout(() => this.#tell(), this.left);
    else if (next) {
      this.passed.add(next.name);
      this.#show(next.sentence(), next);
      this.#tell();
    } else if (this.moves && performance.now() >= this.since + BETWEEN_MS) this.#show(this.now(), null);
  }

  #show(text, moment) {
    clearTimeout(this.timer);
    if (text !== this.text.textContent || moment) this.since = performance.now();
    this.shown = moment;
    setText(this.text, text);
  }
}
