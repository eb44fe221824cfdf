// A picture of a run with one column per step of the cursor, drawn up to the cursor. A press moves the cursor to a
// step.

import { h } from "../dom.js";
import { page } from "../run/state.js";

/** The canvas of a picture, with the cursor's line. */
export class Strip {
  columns = 0;

  /** what: the class of the box. behind: a sentence in the part that is not drawn yet. */
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

  /** Puts the cursor's line after the column of a step. */
  place(step) {
    if (!this.columns) return; // not drawn yet
    if (this.said) this.said.hidden = 2 * (step + 1) > this.columns;
    // Needs no layout.
    this.cursor.style.transform = `translateX(${((100 * (step + 1)) / this.columns).toFixed(3)}cqw)`;
  }
}

/** The number of columns of a trace. */
export const columnsOf = ({ race, steps }) => Math.max(1, race.byClock && !race.live ? race.last + 1 : steps);

/** The last column that is drawn if the cursor is at a step. Steps that are not computed yet are not drawn. */
export const lastColumn = ({ race }, step) => Math.min(step, race.live ? race.front : race.last);

/** Device pixels per CSS pixel, at most 2. */
export const sharpness = () => Math.min(devicePixelRatio || 1, 2);
