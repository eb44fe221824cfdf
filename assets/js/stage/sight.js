// While the cursor moves, only the parts in view are drawn at every step. When the cursor rests, all parts are drawn.
// Texts out of view are updated meanwhile, too, since a screen reader, a search or a printer reads them.

import { inView, watchView } from "../dom.js";

const REST_MS = 150;
const WORDS_MS = 1000; // the greatest age of texts out of view

/** Decides which parts a drawing includes. */
export class Sight {
  constructor(redraw) {
    Object.assign(this, { redraw, moving: false, timer: null, spoken: -Infinity });
  }

  /** Watches parts: a part that comes into view while the cursor moves is drawn then. */
  watch(parts) {
    for (const part of parts) watchView(part, () => this.moving && this.redraw());
  }

  /** Begins a drawing. moving: whether the cursor moves, so that more drawings follow. */
  begin(moving) {
    this.moving = moving;
    this.tells = !moving || performance.now() >= this.spoken + WORDS_MS;
    if (this.tells) this.spoken = performance.now();
    clearTimeout(this.timer);
    if (moving) this.timer = setTimeout(() => this.redraw(), REST_MS);
  }

  has(part) {
    return !this.moving || inView(part);
  }

  reads(part) {
    return this.tells || inView(part);
  }
}
