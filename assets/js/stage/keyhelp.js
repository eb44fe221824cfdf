// The dialog that lists the keys. Escape closes it; the browser gives the focus back.

import { h } from "../dom.js";

const KEYS = [
  [["Space"], "Play or pause"],
  [["←", "→"], "One step back or forward"],
  [["Home", "End"], "To the start or the end"],
  [["N", "P"], "To the next or the previous chapter"],
  [["S"], "Switch between step by step and by time"],
  [["F"], "Present on the full screen, or leave it"],
  [["?"], "These keys"],
];
const GRID_KEYS = [
  [["←", "→", "↑", "↓"], "From cell to cell"],
  [["Home", "End"], "To the first or the last cell"],
  [["Enter"], "Pin the cell and open its details"],
];

const row = ([keys, told]) =>
  h("tr", h("th", { scope: "row" }, ...keys.flatMap((key) => [h("kbd", key), " "])), h("td", told));
const table = (caption, keys) => h("table", h("caption", caption), h("tbody", keys.map(row)));

export class KeyHelp {
  constructor() {
    const close = h("button.sl-small", { onclick: () => this.node.close() }, "Close");
    this.node = h(
      "dialog.sl-keys",
      { "aria-label": "Keys" },
      table("On the page, outside of text fields", KEYS),
      table("In a grid", GRID_KEYS),
      close,
    );
    this.node.addEventListener("keydown", (event) => event.stopPropagation()); // the page behind it keeps still
    this.node.addEventListener("click", (event) => event.target === this.node && this.node.close());
  }

  open() {
    if (!this.node.open) this.node.showModal();
  }
}
