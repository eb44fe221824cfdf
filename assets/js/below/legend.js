// The legend of all kinds of cells.

import { h } from "../dom.js";
import { swatch } from "../stage/legend.js";
import { explained } from "./term.js";

/** The kind of a cell, its description, and the terms that the description explains. */
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

/** Makes the legend. */
export function legend() {
  const explanation = (text, terms) => h("span", explained(text, terms, { stop: false })); // Tab stops at them below
  const kinds = LEGEND.map(([kind, text, ...terms]) => h("li", swatch(kind), explanation(text, terms)));
  return h("ul.sl-legend", { "aria-label": "Legend" }, kinds);
}
