// A picture of a run over the steps of the cursor: a column a step, drawn up to the cursor.
// A press leads the cursor to that step.

import { h } from "../dom.js";
import { page } from "../run/state.js";

export class Strip {
  columns = 0;

  /** what: the box's class. behind: a sentence that stands behind the picture. */
  constructor(what, behind = "") {
    this.canvas = h("canvas.sl-strip", { role: "img" });
    this.cursor = h("div.sl-strip-cursor");
    this.said = behind ? h("span.sl-strip-said", behind) : null;
    this.node = h(`div.sl-strip-box.${what}`, this.said, this.canvas, this.cursor);
    this.canvas.addEventListener("click", ({ clientX }) => {
      const { left, width } = this.canvas.getBoundingClientRect();
      page.now.player.seek(Math.floor(((clientX - left) / width) * this.columns));
    });
  }

  /** Puts the cursor behind the column of a step. */
  place(step) {
    if (!this.columns) return; // not drawn yet
    if (this.said) this.said.hidden = 2 * (step + 1) > this.columns;
    this.cursor.style.transform = `translateX(${((100 * (step + 1)) / this.columns).toFixed(3)}cqw)`; // measures nothing, lays out nothing
  }
}

/** How many columns a trace takes. */
export const columnsOf = ({ race, steps }) => Math.max(1, race.byClock && !race.live ? race.last + 1 : steps);

/** The last column that is drawn where the cursor is at a step: of a run that grows, none before it is computed. */
export const lastColumn = ({ race }, step) => Math.min(step, race.live ? race.front : race.last);

/** Pixels of the screen to one of the page's. */
export const sharpness = () => Math.min(devicePixelRatio || 1, 2);
