// Between Run or Play and the first word of the run: the place in the queue, about how long it takes, and the way out.

import { tell } from "./bus.js";
import { count } from "./dom.js";

const LOOK_MS = 300;
const ASK_MS = 2000;
const LOOKS = 2; // at an error, before it is believed: what left the queue just before is told as one, too

/** "about 40 s": no estimate is better than to five seconds. */
export function about(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "";
  if (seconds < 5) return ", a few seconds";
  if (seconds < 90) return `, about ${5 * Math.round(seconds / 5)} s`;
  return `, about ${Math.round(seconds / 60)} min`;
}

export class Waiting {
  /** say(text) tells the visitor; refused(why): it will not come; seconds(place) asks the server how long that is. */
  constructor({ say, refused, seconds }) {
    Object.assign(this, { say, refused, seconds, on: false });
  }

  /** what: "run", the form's own; "apply", a what-if or a lesson's run; "more", of a paused run, which is told of only when there is a queue. */
  begin(what) {
    this.end();
    Object.assign(this, { on: true, what, told: false, failed: 0, place: 0, asked: 0, left: null });
    this.timer = setInterval(() => this.#look(), LOOK_MS);
    if (what !== "more") this.#tell(true);
  }

  /** Whether that waits. */
  for(what) {
    return this.on && this.what === what;
  }

  end() {
    clearInterval(this.timer);
    if (!this.on) return;
    this.on = false;
    this.#tell(false);
  }

  #tell(waits) {
    if (this.told === waits) return;
    this.told = waits;
    tell("waiting", waits);
  }

  /** Gradio tells the place in the queue in a corner of the page; the stage says it where everybody looks. */
  #look() {
    const queue = document.getElementById("sl-queue");
    this.failed = queue?.querySelector(".error") ? this.failed + 1 : 0;
    if (this.failed === LOOKS) {
      this.end();
      return this.refused("The server refused this run; its message is in the corner of the page.");
    }
    const place = Number(queue?.textContent.match(/queue:\s*(\d+)\s*\/\s*\d+/)?.[1] ?? this.place);
    if (!place) return;
    this.#tell(true);
    if (place !== this.place || performance.now() > this.asked + ASK_MS) this.#ask(place);
    this.say(`Waiting for the device: ${count(place, "run")} before yours${about(this.left)}.`);
  }

  async #ask(place) {
    Object.assign(this, { place, asked: performance.now() });
    this.left = await this.seconds(place);
  }
}
