// While somebody scrubs, only what is in sight is drawn with each step; the rest follows when the scrubbing rests.

import { inView, watchView } from "./dom.js";

const REST_MS = 150;

export class Sight {
  /** redraw() draws all that is shown. */
  constructor(redraw) {
    Object.assign(this, { redraw, scrubbing: false, timer: null });
  }

  /** The parts that are drawn apart; what comes into sight is drawn then. */
  watch(parts) {
    for (const part of parts) watchView(part, () => this.redraw());
  }

  /** Before each drawing: whether it is one of many to come. */
  begin(scrubbing) {
    this.scrubbing = scrubbing;
    clearTimeout(this.timer);
    if (scrubbing) this.timer = setTimeout(() => this.redraw(), REST_MS);
  }

  /** Whether a part has to be drawn now. */
  has(part) {
    return !this.scrubbing || inView(part);
  }
}
