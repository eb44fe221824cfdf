// The first Tab stop of the page: past the sidebar's many fields, to the grids.

import { h } from "../dom.js";

export function addSkipLink(grids) {
  grids.id = "sl-grids";
  const go = (event) => {
    event.preventDefault();
    grids.querySelector("canvas")?.focus();
  };
  document.body.prepend(h("a.sl-skip", { href: "#sl-grids", onclick: go }, "To the grids"));
}
