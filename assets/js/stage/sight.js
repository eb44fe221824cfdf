// While the cursor moves, dragged or by itself, only what is in sight is drawn with every step; the rest follows at rest.
// Words out of sight follow meanwhile, too: a screen reader, a search or a printer finds them there.

import { inView, watchView } from "../dom.js";

const REST_MS = 150;
const WORDS_MS = 1000; // words out of sight are no older than that

export class Sight {
  constructor(redraw) {
    Object.assign(this, { redraw, moving: false, timer: null, spoken: -Infinity });
  }

  /** The parts that are drawn apart; what comes into sight while the cursor moves is drawn then, at rest it has been. */
  watch(parts) {
    for (const part of parts) watchView(part, () => this.moving && this.redraw());
  }

  /** Begins a drawing. moving: whether it is one of many to come. */
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
