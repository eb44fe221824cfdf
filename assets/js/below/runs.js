// The list of this visitor's runs, with their prompts and the beginnings of their lanes' texts.
// A run can be shown again, and its settings can be put into the form.

import { h } from "../dom.js";
import { page } from "../run/state.js";
import { promptOf, textOf } from "../trace/prose.js";

const HINT = "Runs of this visit stay in this page until you close it.";
const EXCERPT = 90; // the most characters of a text that the list shows

const CALLED = { live: "your own" }; // the names of sources of runs

const cutTo = (text, most) => (text.length > most ? `${text.slice(0, most).trimEnd()}\u00a0…` : text);

/** The panel with the list of runs. */
export class Runs {
  /** onShow(trace): shows a run. onUse(trace): puts a run's settings into the form; null if the page has no form. */
  constructor({ onShow, onUse }) {
    Object.assign(this, { onShow, onUse });
    this.list = h("ol.sl-run-list");
    this.node = h("div.sl-runs", h("p.sl-hint", HINT), this.list);
  }

  draw() {
    const buttons = () => [...this.list.querySelectorAll("button")];
    const focused = buttons().indexOf(document.activeElement);
    this.list.replaceChildren(...page.now.runs.map((entry) => this.#run(entry)));
    if (focused >= 0) buttons()[focused]?.focus(); // the focused button was replaced
  }

  #run({ trace, number, source }) {
    const button = (text, label, action) => h("button.sl-small", { "aria-label": label, onclick: action }, text);
    const text = (lane) => cutTo(textOf(trace, lane, trace.count - 1), EXCERPT);
    const lanes = trace.lanes.map((lane) => h("p.sl-run-lane", { dir: "auto" }, h("b", lane.name), ` ${text(lane)}`));
    return h(
      "li.sl-run",
      `${number} (${CALLED[source] ?? source}) `,
      button("Show", `Show run ${number}`, () => this.onShow(trace)),
      this.onUse && button("Use these settings", `Use these settings, of run ${number}`, () => this.onUse(trace)),
      h("p.sl-hint", { dir: "auto" }, cutTo(promptOf(trace), EXCERPT)),
      lanes,
    );
  }
}
