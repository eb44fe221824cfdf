// The teller shows the sentences of a race's moments in their order, and between them now and then a sentence about
// the present step. The race rests while a new sentence is shown. A sentence disappears when the cursor is more than
// two steps after its step, or when its lane has ended.

import { h, setText } from "../dom.js";
import { Headline } from "./verdict.js";

const LEAST_MS = 2500; // the least time for which a sentence is shown
const BETWEEN_MS = 3000; // the least pause before a sentence that belongs to no moment
const BEHIND = 2; // the most steps between a sentence's step and the cursor

/** Shows the sentences. */
export class Teller {
  constructor() {
    this.text = h("p.sl-narrator");
    this.headline = new Headline();
    this.node = h("div.sl-narrator-box", this.text, this.headline.node);
    this.load();
  }

  /** Begins another race. */
  load() {
    Object.assign(this, { since: -Infinity, until: -Infinity, step: null, told: null, passed: new Set() });
    this.headline.clear();
    setText(this.text, "");
  }

  /** The milliseconds for which the present sentence must still be shown. The race rests so long. */
  get rest() {
    const begun = this.told?.step === this.step;
    return begun ? Math.max(0, this.since + LEAST_MS - performance.now()) : 0;
  }

  /**
   * Follows the cursor to a step. Returns the step of the shown sentence, null if there is none.
   * @param {number} step
   * @param {object} state
   * @param {{step: number, name: string, sentence: () => string}[]} state.moments the moments in their order
   * @param {() => string} state.now returns the sentence of the step
   * @param {boolean} state.held whether a visitor has put the cursor there
   * @param {boolean} state.moves whether the cursor moves by itself
   * @param {boolean} state.ends whether the lane of the sentences has ended
   * @param {boolean} state.over whether all lanes have ended
   */
  follow(step, { moments, now, held, moves, ends, over }) {
    const before = this.step;
    this.step = step;
    if (!over) this.headline.clear();
    if (over) this.#clear();
    else if (held || (before === null && !moves)) this.#show(step, now(), ends);
    else this.#tell(step, before, { moments, now, moves, ends });
    return this.told?.step ?? null;
  }

  #tell(step, before, { moments, now, moves, ends }) {
    if (before !== null && step < before) this.passed.clear();
    for (const { name, step: at } of moments) if (at < step - BEHIND) this.passed.add(name);
    const due = moments.find((moment) => moment.step <= step && !this.passed.has(moment.name));
    if (this.rest && !due) return;
    if (due && !this.rest) {
      this.passed.add(due.name);
      return this.#show(due.step, due.sentence(), ends);
    }
    if (this.told && this.#isGone(step, ends)) this.#clear();
    const quiet = performance.now() >= this.until + BETWEEN_MS;
    if (!this.told && moves && quiet && step >= 0) this.#show(step, now(), ends);
  }

  /** Whether the cursor has left the step of the present sentence, or the lane has ended since. */
  #isGone(step, ends) {
    const { told } = this;
    return step > told.step + BEHIND || step < told.step || told.ends !== ends;
  }

  #show(step, text, ends) {
    if (!text) return this.#clear();
    const other = text !== this.text.textContent;
    if (other || this.told?.step !== step) this.since = performance.now();
    this.told = { step, ends };
    setText(this.text, text);
  }

  #clear() {
    if (this.told) this.until = performance.now();
    this.told = null;
    setText(this.text, "");
  }
}
