// What the cells of a grid look like, and what that means.

import { h } from "./dom.js";
import { explained } from "./glossary.js";

/** The kind of a cell, its words, and what they explain. */
const LEGEND = [
  ["masked", "masked"],
  ["active", "active: computed in this step"],
  ["resting", "resting: not computed in this step"],
  ["locked", "locked: no longer computed", "locked"],
  ["prompt", "prompt"],
  ["differs", "differs from the reference", "reference"],
];

export const legend = () =>
  h(
    "ul",
    { class: "sl-legend", "aria-label": "Legend" },
    LEGEND.map(([kind, text, ...terms]) => {
      const swatch = h("span", { class: `sl-swatch sl-swatch-${kind}`, "aria-hidden": "true" });
      return h("li", {}, swatch, h("span", {}, explained(text, terms, { stop: false }))); // Tab finds them further down
    }),
  );
