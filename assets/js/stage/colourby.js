// What the cells' fill says: the state, or a value on a scale. A select beside the legend, and the scale, with its two ends, in
// the place of the key.

import { h, setText } from "../dom.js";
import { VALUES } from "../trace/values.js";

export class ColourBy {
  constructor(stage) {
    Object.assign(this, { stage, name: "state", trace: null });
    const option = (name) => h("option", { value: name }, VALUES[name]?.label ?? "State");
    const options = ["state", ...Object.keys(VALUES)].map(option);
    this.select = h("select.sl-speed", { onchange: () => this.choose(this.select.value) }, options);
    this.low = h("span");
    this.high = h("span");
    const ramp = h("span.sl-scale-ramp", { "aria-hidden": "true" });
    this.called = h("span");
    this.scale = h("span.sl-scale", { hidden: true }, this.called, this.low, ramp, this.high); // it stands where the key did
    this.node = h("span.sl-choice", h("label", "Colours ", this.select));
  }

  load(trace) {
    this.trace = trace;
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
    setText(this.called, `${told.label}:`);
    setText(this.low, low);
    setText(this.high, high);
  }
}
