// A picture of a whole run under its grid: a column for each step of the cursor, and the cursor in it.

import { h } from "../dom.js";

export class Strip {
  columns = 0;

  /** what: the box's class; label: what is drawn, in a word or two, "" where that needs none. */
  constructor(what, { onSeek, label = "" }) {
    this.canvas = h("canvas.sl-strip", { role: "img" });
    this.cursor = h("div.sl-strip-cursor");
    this.label = h("span.sl-strip-label", label);
    this.node = h(`div.sl-strip-box.${what}`, this.canvas, this.cursor, label ? this.label : null);
    this.canvas.addEventListener("click", ({ clientX }) => {
      const { left, width } = this.canvas.getBoundingClientRect();
      onSeek(Math.floor(((clientX - left) / width) * this.columns));
    });
  }

  moveTo(step) {
    if (!this.columns) return; // not drawn yet
    this.cursor.style.transform = `translateX(${((100 * (step + 0.5)) / this.columns).toFixed(3)}cqw)`; // measures nothing, lays out nothing
  }
}

/** How many columns a trace takes, and the last that there is. */
export function columnsOf({ race, steps }) {
  const all = Math.max(1, race.byClock && !race.live ? race.last + 1 : steps); // a canvas has one at least
  return [all, race.live ? race.front : race.last];
}
