// What the cells of a grid look like, and what that means.

import { h } from "../dom.js";
import { explained } from "../panels/term.js";

/** The kind of a cell, its words, and what they explain. */
const LEGEND = [
  ["masked", "masked"],
  ["guess", "what would be written there now"],
  ["active", "active: computed in this step"],
  ["resting", "resting: not computed in this step"],
  ["locked", "locked: no longer computed", "locked"],
  ["back", "masked again: its token was taken back"],
  ["prompt", "prompt"],
  ["differs", "differs from the reference", "reference"],
  ["end", "the end of the text"],
];

const swatch = (kind) => h(`span.sl-swatch.sl-swatch-${kind}`, { "aria-hidden": "true" });

export function key() {
  const kinds = ["masked", "active", "locked"].map((kind) => h("li", swatch(kind), kind));
  return h("ul.sl-legend.sl-key", { "aria-label": "Key" }, kinds);
}

export function legend() {
  const told = (text, terms) => h("span", explained(text, terms, { stop: false })); // Tab finds them further down
  const kinds = LEGEND.map(([kind, text, ...terms]) => h("li", swatch(kind), told(text, terms)));
  return h("ul.sl-legend", { "aria-label": "Legend" }, kinds);
}
