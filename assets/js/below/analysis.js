// A bar chart of the numbers of steps for which written tokens stayed active.

import { count, h, throttle } from "../dom.js";
import { page } from "../run/state.js";

// The edges of the bars, in steps; the upper edge is excluded.
const EDGES = [0, 1, 2, 4, 8, 16, 32, 64, 128, Infinity];

function delayLabel(low, high) {
  if (high === Infinity) return `${low} or more`;
  return high - low > 1 ? `${low}–${high - 1} steps` : count(low, "step");
}

/**
 * How long written tokens stayed active, after a lane's last step: {delays, never}.
 * delays: for every locked token, the number of steps from its writing (for the prompt: from the start) to its lock, in
 *   ascending order.
 * never: the number of written tokens that are not locked.
 */
export function lockDelays(lane) {
  const last = lane.count - 1;
  const cells = Array.from({ length: lane.n }, (_, p) => p);
  const written = cells.filter((p) => lane.token(p, last) >= 0);
  const locked = written.filter((p) => lane.isLocked(p, last));
  const delays = locked.map((p) => lane.lockStep(p, last) - Math.max(0, lane.unmaskStep(p, last)));
  return { delays: delays.sort((a, b) => a - b), never: written.length - locked.length };
}

function bars(lane) {
  const { delays, never } = lockDelays(lane);
  if (!delays.length) return h("section", h("h5", lane.name), h("p.sl-hint", "Nothing has locked."));
  const half = count(delays[Math.floor(delays.length / 2)], "step");
  const counts = EDGES.slice(1).map((top, i) => delays.filter((delay) => delay >= EDGES[i] && delay < top).length);
  const rows = counts.map((number, i) => [delayLabel(EDGES[i], EDGES[i + 1]), number, ""]);
  const shown = rows.filter(([, number]) => number).concat([["not locked", never, ".sl-delay-active"]]);
  const most = Math.max(...shown.map(([, number]) => number));
  const items = shown.map(([label, number, kind]) => {
    const bar = h(`span.sl-delay-bar${kind}`);
    bar.style.width = `${(100 * number) / most}%`;
    return h("li", h("span", label), h("span.sl-delay-track", bar), h("span", `${number}`));
  });
  const sentence = `${count(delays.length, "token")} locked, half of them within ${half} of being written.`;
  return h("section", h("h5", lane.name), h("p.sl-hint", sentence), h("ol.sl-delay", items));
}

/** The panel with the bar chart. */
export class Analysis {
  constructor() {
    const lanes = h("div.sl-delays");
    this.node = h("div", h("h4", "How many steps after it was written each token locked"), lanes);
    const draw = () => {
      const { trace } = page.now;
      if (trace && this.node.clientWidth) lanes.replaceChildren(...trace.lanes.map(bars));
    };
    this.redraw = throttle(draw, 700);
  }
}
