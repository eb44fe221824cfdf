// What is told while the picture moves stays long enough to be read.

import { h, setText } from "../dom.js";

const LEAST_MS = 1800;

export class Teller {
  constructor() {
    this.text = h("p.sl-narrator");
    this.room = h("p.sl-narrator.sl-narrator-room", { "aria-hidden": "true" });
    this.node = h("div.sl-narrator-box", this.text, this.room);
    this.since = -Infinity;
  }

  /** now: the picture stands, or stops here: the sentence is due whatever stood before. */
  tell(text, now) {
    const due = now || performance.now() >= this.since + LEAST_MS;
    if (!due || text === this.text.textContent) return;
    this.since = performance.now();
    setText(this.text, text);
  }

  /** Room for the longest that will be said, as far as it is known: what stands below must not jump. */
  keep(longest) {
    setText(this.room, longest);
  }
}
