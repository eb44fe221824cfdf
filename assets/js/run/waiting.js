// Between Run or Play and the first word of the run: the place in the queue, about how long it takes, and the way out.

import { count } from "../dom.js";
import { page } from "./state.js";

const PATIENCE_MS = 300; // where the device is free, it is no waiting

/** "about 40 s": no estimate is better than to five seconds. */
export function about(seconds) {
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 5) return ", a few seconds";
  if (seconds < 90) return `, about ${5 * Math.round(seconds / 5)} s`;
  return `, about ${Math.round(seconds / 60)} min`;
}

export class Waiting {
  /** seconds(place) asks the server how long it takes until the run at that place begins. */
  constructor({ seconds }) {
    this.seconds = seconds;
  }

  /** what: "run", the form's own; "branch", a what-if or a lesson's run; "more", of a paused run. */
  begin(what) {
    this.end();
    this.begun = performance.now();
    page.set({ waits: what });
  }

  end() {
    page.set({ waits: null, place: 0, waiting: "" });
  }

  /** The queue tells the place of what waits; 0: it has its turn. */
  async at(place) {
    if (!page.now.waits) return;
    const { begun } = this;
    page.set({ place });
    if (!place) return page.set({ waiting: "" });
    const patience = this.begun + PATIENCE_MS - performance.now();
    if (patience > 0) await new Promise((then) => setTimeout(then, patience));
    const left = await this.seconds(place);
    if (this.begun !== begun || page.now.place !== place) return;
    page.set({ waiting: `Waiting for the device: ${count(place, "run")} before yours${about(left)}.` });
  }
}
