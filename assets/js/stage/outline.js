// How the parts of a stage stand below each other.

import { h } from "../dom.js";
import { tabs } from "../panels/tabs.js";
import { letterKeys } from "./keys.js";
import { key, legend } from "./legend.js";

const PANELS = ["Analysis", "Runs", "Export", "About"]; // see panels/panels.js

export function outline(stage) {
  stage.timeline.node.append(stage.presenter.button, help(stage));
  const looks = h("div.sl-bar-row", legend(), stage.colouring.node, stage.long.node);
  const numbers = ["Numbers", h("div.sl-all-numbers", stage.gauges.node, looks)];
  const opens = () => stage.parts.panels.use((all) => all.open());
  const panels = PANELS.map((name) => [name, h("div", { "data-panel": name }), opens]);
  stage.tabs = tabs([numbers, ...panels], "More about this run");
  const first = [
    stage.teller.node,
    h("div.sl-above", stage.numbers.node, stage.recording, key(), stage.colouring.scale),
    stage.floor,
  ];
  const dock = h("div.sl-dock", stage.status, stage.timeline.node);
  const further = [stage.lower, stage.texts, stage.label, stage.tabs.node];
  return [...first, dock, ...further, stage.summary, stage.cells.spoken, stage.cells.tip];
}

export function quickShare(stage) {
  const fetch = () => stage.quick.open && stage.parts.panels.use();
  stage.quick = h("details.sl-quick", { ontoggle: fetch }, h("summary.sl-small", "Share"));
  return stage.quick;
}

function help(stage) {
  const open = () => stage.parts.panels.use(({ help }) => help.open || help.showModal());
  letterKeys({ "?": open });
  const told = { "aria-label": "Keys", title: "Keys (?)" };
  return h("button.sl-tool.sl-help", { ...told, onclick: open }, "?");
}
