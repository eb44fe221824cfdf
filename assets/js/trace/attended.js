// What a choice looked at: in the step that writes a position, the positions that it attends to most, and which of them are
// locked, so that it met their keys and values as they were.

import { h, percent, setText } from "../dom.js";
import { LOCKED } from "./trace.js";

const LISTED = 4;

/** The sentence, from [[position, share], ...] as a dense forward of the step's tokens has them. */
export function lookedAt(trace, lane, t, list) {
  const before = t > 0 ? lane.row(t - 1) : []; // what locks in the step itself was computed in it
  const told = list.slice(0, LISTED).map(([p, share]) => {
    return `${trace.word(lane.token(p, t))} ${percent(share)}${before[p] === LOCKED ? " (locked)" : ""}`;
  });
  return told.length ? `Among the words already written, this prediction attended most to ${told.join(", ")}.` : "";
}

/** A line in each of the inspector's columns. fetch(trace, lane, cell, t) -> Promise of the list, or of null. */
export class Attended {
  constructor(fetch) {
    this.fetch = fetch;
  }

  line() {
    return h("p.sl-attended");
  }

  /** Writes the line, a moment later, where the position is written in the step that the lane is at. */
  draw(trace, { lane, attended: line }, cell, step) {
    const t = trace.reached(lane, step);
    const wanted = this.fetch && t >= 0 && lane.steps[t].unmasked.includes(cell) ? `${cell}/${t}` : "";
    if (line.dataset.wanted === wanted) return;
    line.dataset.wanted = wanted;
    setText(line, "");
    if (!wanted) return;
    setTimeout(async () => {
      if (line.dataset.wanted !== wanted) return; // the pointer has gone on
      const list = await this.fetch(trace, lane, cell, t);
      if (list && line.dataset.wanted === wanted) setText(line, lookedAt(trace, lane, t, list));
    }, 150);
  }
}
