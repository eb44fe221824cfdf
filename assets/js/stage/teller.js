// The one slow narrator: the moments of a race in their order, and between them now and then what happens. The race rests while
// a new sentence stands; one about a step that is further behind than two, or about a lane that has ended, is gone.

import { h, setText } from "../dom.js";
import { Headline } from "./verdict.js";

const LEAST_MS = 2500; // that a sentence stands
const BETWEEN_MS = 3000; // without one, before one that is no moment's
const BEHIND = 2; // steps of the cursor

export class Teller {
  constructor() {
    this.text = h("p.sl-narrator");
    this.headline = new Headline();
    this.node = h("div.sl-narrator-box", this.text, this.headline.node);
    this.load();
  }

  /** Another race; its first step to come is where it begins. */
  load() {
    Object.assign(this, { since: -Infinity, until: -Infinity, step: null, told: null, passed: new Set() });
    this.headline.clear();
    setText(this.text, "");
  }

  /** How long the sentence that stands has still to stand, in milliseconds: the race rests so long. */
  get rest() {
    const begun = this.told?.step === this.step;
    return begun ? Math.max(0, this.since + LEAST_MS - performance.now()) : 0;
  }

  /** The cursor's step. moments: [{step, name, sentence()}, ...] in order. now(): the step's own sentence. held: a hand has put
   * the cursor there; moves: it goes on by itself; ends: the lane that sentences are about has ended; over: all have. Gives
   * the step of the sentence that stands, null where none does. */
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
    const due = moments.find((each) => each.step <= step && !this.passed.has(each.name));
    if (this.rest && !due) return;
    if (due && !this.rest) {
      this.passed.add(due.name);
      return this.#show(due.step, due.sentence(), ends);
    }
    const gone = this.told && (step > this.told.step + BEHIND || step < this.told.step || this.told.ends !== ends);
    if (gone) this.#clear();
    const quiet = performance.now() >= this.until + BETWEEN_MS;
    if (!this.told && moves && quiet && step >= 0) this.#show(step, now(), ends);
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
