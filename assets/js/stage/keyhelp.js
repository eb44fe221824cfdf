// The dialog that lists the keys. Escape closes it, and the browser returns the focus.

import { dialog, h } from "../dom.js";

const KEYS = [
  [["Space"], "Play or pause"],
  [["←", "→"], "One step back or forward"],
  [["Home", "End"], "To the start or the end"],
  [["N", "P"], "To the next or the previous mark on the player"],
  [["S"], "Race by the clock, or step by step"],
  [["F"], "Present on the full screen, or leave it"],
  [["?"], "These keys"],
];
const GRID_KEYS = [
  [["←", "→", "↑", "↓"], "From cell to cell"],
  [["Home", "End"], "To the first or the last cell"],
  [["Enter"], "Open the menu of the cell: choose a word, lock it, compare"],
];

const row = ([keys, action]) => {
  const keyNodes = keys.flatMap((key) => [h("kbd", key), " "]);
  return h("tr", h("th", { scope: "row" }, ...keyNodes), h("td", action));
};
const table = (caption, keys) => h("table", h("caption", caption), h("tbody", keys.map(row)));

/** Makes the dialog. */
export function keyHelp() {
  const close = h("button.sl-small", { onclick: () => node.close() }, "Close");
  const tables = [table("On the page, outside of text fields", KEYS), table("In a grid", GRID_KEYS)];
  const node = dialog("dialog.sl-keys", { "aria-label": "Keys" }, tables, close);
  return node;
}
