// The key: samples of cells, and their meanings.

import { h, perFrame } from "../dom.js";
import { page } from "../run/state.js";
import { RESTING } from "../trace/states.js";

/** Makes a sample of a kind of cell. */
export const swatch = (kind) => h(`span.sl-swatch.sl-swatch-${kind}`, { "aria-hidden": "true" });

/** The kinds of cells in the key: kind, word, whether a trace has such cells, and an explanation for wide screens. */
const KEY = [
  ["masked", "masked", () => true],
  ["active", "active", () => true, ": computed now"],
  ["resting", "resting", ({ lanes }) => lanes.some((lane) => lane.state.includes(RESTING)), ": left out now"],
  ["locked", "locked", ({ lanes }) => lanes.some((lane) => lane.held.includes(1)), ": skipped"],
  ["end", "end of text", endsOf],
];

/** Whether a lane writes a token that ends the text. */
function endsOf({ lanes, ends }) {
  const last = (lane) => lane.tokens(lane.count - 1);
  return lanes.some((lane) => last(lane).some((token) => ends.has(token)));
}

/** Makes the key, which shows the kinds of cells of the trace on show. */
export function key() {
  const kinds = KEY.map(([kind, text, occurs, more = ""]) => {
    const label = h("span", text, h("span.sl-desk-only", more));
    return { node: h("li", swatch(kind), label), occurs };
  });
  const follow = perFrame(({ trace }) => {
    for (const { node, occurs } of kinds) node.hidden = !occurs(trace);
  });
  page.follow(["laid", "records", "ended"], (now) => now.trace && follow(now));
  const nodes = kinds.map(({ node }) => node);
  return h("ul.sl-legend.sl-key", { "aria-label": "Key" }, nodes);
}

/** The kinds of cells of a lane in words, for races whose lanes have different kinds. */
export function laneKinds(lane) {
  const kinds = [
    ["active", true],
    ["resting", lane.state.includes(RESTING)],
    ["locked", lane.held.includes(1)],
  ];
  return kinds.filter(([, occurs]) => occurs).map(([kind]) => h("li", swatch(kind), h("span", kind)));
}
