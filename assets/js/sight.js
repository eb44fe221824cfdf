// While the cursor moves, dragged or by itself, only what is in sight is drawn with each step; the rest follows at rest.

import { inView, watchView } from "./dom.js";

const REST_MS = 150;

export class Sight {
  /** redraw() draws all that is shown. */
  constructor(redraw) {
    Object.assign(this, { redraw, moving: false, timer: null });
  }

  /** The parts that are drawn apart; what comes into sight while the cursor moves is drawn then, at rest it has been. */
  watch(parts) {
    for (const part of parts) watchView(part, () => this.moving && this.redraw());
  }

  /** Before each drawing: whether it is one of many to come. */
  begin(moving) {
    this.moving = moving;
    clearTimeout(this.timer);
    if (moving) this.timer = setTimeout(() => this.redraw(), REST_MS);
  }

  /** Whether a part has to be drawn now. */
  has(part) {
    return !this.moving || inView(part);
  }
}
