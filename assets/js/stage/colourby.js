// What the cells' fill says: the state, or a value on a scale. A select beside the legend, and the scale's two ends.

import { h, setText } from "../dom.js";
import { VALUES } from "../trace/values.js";

export class ColourBy {
  constructor(stage) {
    Object.assign(this, { stage, name: "state", trace: null });
    this.select = h("select.sl-speed", { onchange: () => this.choose(this.select.value) });
    this.low = h("span");
    this.high = h("span");
    const ramp = h("span.sl-scale-ramp", { "aria-hidden": "true" });
    this.scale = h("span.sl-scale", { hidden: true }, this.low, ramp, this.high);
    this.node = h("span.sl-choice", h("label", "Colours ", this.select), this.scale);
  }

  /** Another trace, or more of it: what can be chosen. */
  load(trace) {
    this.trace = trace;
    const offered = Object.entries(VALUES).filter(([, { offered: test }]) => !test || test(trace));
    const names = ["state", ...offered.map(([name]) => name)];
    if (!names.includes(this.name)) this.name = "state";
    const option = (name) => h("option", { value: name }, VALUES[name]?.label ?? "State");
    if (names.length !== this.select.length) this.select.replaceChildren(...names.map(option));
    this.#tell();
  }

  choose(name) {
    if (![...this.select.options].some(({ value }) => value === name)) return;
    this.name = name;
    this.#tell();
    this.stage.redraw();
    this.stage.onView();
  }

  /** A lane's values at a step, or null where the state is told. */
  values(lane, step) {
    return VALUES[this.name]?.of(this.trace, lane, step) ?? null;
  }

  #tell() {
    this.select.value = this.name;
    const told = VALUES[this.name];
    this.scale.hidden = !told;
    if (!told) return;
    const [low, high] = told.ends(this.trace);
    setText(this.low, low);
    setText(this.high, high);
  }
}
