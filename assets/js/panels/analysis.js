// How long positions stayed active once they were written.

import { count, h, inView, throttle, watchView } from "../dom.js";
import { isMasked, LOCKED } from "../trace/states.js";

const EDGES = [0, 1, 2, 4, 8, 16, 32, 64, 128, Infinity];

/** The name of the delays from `low` steps up to, but not including, `high`. */
function delayLabel(low, high) {
  if (high === Infinity) return `${low} or more`;
  if (high - low > 1) return `${low}–${high - 1} steps`;
  return low === 0 ? "same step" : "1 step";
}

/** What is said of positions that are locked, by how many steps each waited, the least first. */
export function lockedText(delays) {
  if (!delays.length) return "Nothing has locked.";
  const half = delays[Math.floor(delays.length / 2)];
  const within = `within ${count(half, "step")} of being written.`;
  return delays.length === 1
    ? `1 token is locked, ${within}`
    : `${delays.length} tokens are locked; half of them ${within}`;
}

export class Analysis {
  constructor() {
    this.delays = h("div.sl-delays");
    const title = h("h4", "How many steps after it was written each token locked");
    this.node = h("div", title, this.delays);
    this.redraw = throttle(() => this.draw(), 700);
    watchView(this.node, () => this.redraw());
  }

  load(trace) {
    this.trace = trace;
    this.redraw();
  }

  draw() {
    if (!this.trace || !this.node.clientWidth || !inView(this.node)) return;
    this.delays.replaceChildren(...this.trace.lanes.map((lane) => this.#delay(lane)));
  }

  /** Steps from writing (for the prompt: from the start) to the lock that holds now, as bars. */
  #delay(lane) {
    const last = lane.count - 1;
    const states = lane.row(last);
    const delays = [];
    let never = 0;
    for (let p = 0; p < lane.n; p++) {
      if (states[p] === LOCKED) delays.push(lane.lockStep(p, last) - Math.max(0, lane.unmaskStep(p, last)));
      else if (!isMasked(states[p])) never++;
    }
    const counts = EDGES.slice(1).map((top, i) => delays.filter((d) => d >= EDGES[i] && d < top).length);
    const rows = counts.map((count, i) => [delayLabel(EDGES[i], EDGES[i + 1]), count]).filter(([, c], i) => c || i < 4);
    rows.push(["not locked", never]);
    delays.sort((a, b) => a - b);
    const drawn = delays.length ? bars(rows, Math.max(1, ...counts, never)) : null;
    return h("section", h("h5", lane.name), h("p.sl-hint", lockedText(delays)), drawn);
  }
}

function bars(rows, most) {
  const items = rows.map(([label, count], i) => {
    const fill = h(`span.sl-delay-bar${i === rows.length - 1 ? ".sl-delay-active" : ""}`);
    fill.style.width = `${(100 * count) / most}%`;
    return h(
      "li",
      h("span.sl-delay-label", label),
      h("span.sl-delay-track", fill),
      h("span.sl-delay-count", `${count}`),
    );
  });
  return h("ol.sl-delay", items);
}
