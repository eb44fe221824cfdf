// The order of the parts of a stage on the page.

import { tabs } from "../below/tabs.js";
import { h } from "../dom.js";
import { letterKeys } from "./keys.js";
import { key } from "./legend.js";
import { icon } from "./timeline.js";

const PANELS = ["Numbers", "Analysis", "Runs", "Export", "About"]; // see below/panels.js
const CORNERS = "M4 9V4h5v2H6v3zM15 4h5v5h-2V6h-3zM4 15h2v3h3v2H4zM18 15h2v5h-5v-2h3z";

/**
 * The parts of a stage in their order, and the tabs among them: {nodes, tabs}.
 * views: {teller, numbers, recording, colouring, floor, charts, timeline, status, lower, label, summary}; parts: see
 * partsOf.
 */
export function outline(views, parts) {
  const { teller, numbers, recording, colouring, floor, charts } = views;
  const { timeline, status, lower, label, summary } = views;
  timeline.node.append(present(parts), help(parts));
  const opens = () => parts.panels.use((panels) => panels.open());
  const tabList = PANELS.map((name) => [name, h("div", { "data-panel": name }), opens]);
  const more = tabs(tabList, "More about this run");
  const above = h("div.sl-above", numbers.node, key(), colouring.scale);
  numbers.counts.append(recording);
  const dock = h("div.sl-dock", timeline.node);
  const { spoken, tip } = floor.cells;
  const first = [status, teller.node, above, floor.node, charts.node, dock];
  return { nodes: [...first, lower, floor.texts, label, more.node, summary, spoken, tip], tabs: more };
}

/** Makes the disclosure "Share" beside the verdict. The panels make its content. */
export function quickShare(parts) {
  const ontoggle = ({ target }) => target.open && parts.panels.use();
  return h("details.sl-quick", { ontoggle }, h("summary.sl-small", "Share"));
}

function present(parts) {
  const toggle = () => parts.presenter.use((presenter) => presenter.toggle());
  letterKeys({ f: toggle });
  if (new URLSearchParams(location.search).has("present")) parts.presenter.use((presenter) => presenter.enter());
  const attributes = { "aria-label": "Present", title: "Present on the full screen (F)", onclick: toggle };
  return h("button.sl-tool.sl-present-button", attributes, icon(CORNERS));
}

function help(parts) {
  const open = () => parts.panels.use(({ help: dialog }) => dialog.open || dialog.showModal());
  letterKeys({ "?": open });
  return h("button.sl-tool.sl-help", { "aria-label": "Keys", title: "Keys (?)", onclick: open }, "?");
}
