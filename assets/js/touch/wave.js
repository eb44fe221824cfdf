// The wave: the cells of a touched lane that show another word than the original lane.
// A cell gets an outline in the first step with another word. After a second the outline fades to a thin mark.

import { reducedMotion } from "../dom.js";
import { showsAt } from "../trace/touches.js";

const STANDS_MS = 1000;
const FADES_MS = 600;
/** The greatest level of an outline, that of a new one. Level 0 is no outline, level 1 a thin mark. */
export const LEVELS = 7;

/** Flags of the cells that show another word after step t, [n]. */
export function otherAt({ original, touched }, t) {
  return Uint8Array.from({ length: touched.n }, (_, cell) => {
    const [mine, theirs] = [touched, original].map((lane) => showsAt(lane, cell, t));
    return Number(mine >= 0 && theirs >= 0 && mine !== theirs);
  });
}

/** The outlines of a touched lane. */
export class Wave {
  #since = new Map(); // by cell, the time at which its outline began
  #step = null;
  #count = -1;
  #other = null;

  constructor(pair, redraw) {
    Object.assign(this, { pair, redraw, waits: false });
  }

  /**
   * The levels of the outlines after a lane's step t, [n]; null if the lane is not the touched one. now:
   * milliseconds.
   */
  levels(lane, t, now = performance.now()) {
    if (lane !== this.pair.touched) return null;
    if (t !== this.#step || this.pair.touched.count !== this.#count) this.#moveTo(t, now);
    const levels = new Uint8Array(this.pair.touched.n);
    let fading = false;
    for (const [cell, since] of this.#since) {
      const left = 1 - Math.max(0, now - since - STANDS_MS) / FADES_MS;
      levels[cell] = Math.max(1, Math.ceil(LEVELS * left));
      fading ||= left > 0;
    }
    if (fading && !reducedMotion()) this.#again();
    return levels;
  }

  #moveTo(t, now) {
    const next = t === this.#step || t === (this.#step ?? t) + 1;
    const other = otherAt(this.pair, t);
    const before = next && this.#other ? this.#other : otherAt(this.pair, t - 1);
    const still = reducedMotion();
    for (let cell = 0; cell < other.length; cell++) {
      if (!other[cell]) this.#since.delete(cell);
      else if (!this.#since.has(cell) || (!before[cell] && !next)) {
        const old = before[cell] || still;
        this.#since.set(cell, old ? Number.NEGATIVE_INFINITY : now);
      }
    }
    this.#other = other;
    this.#step = t;
    this.#count = this.pair.touched.count;
  }

  #again() {
    if (this.waits) return;
    this.waits = true;
    requestAnimationFrame(() => {
      this.waits = false;
      this.redraw();
    });
  }
}
