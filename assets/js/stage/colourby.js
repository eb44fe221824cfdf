// What the cells' fill says: the state, or a value on a scale; and whether masked ones hold guesses. A select beside the legend, and the scale, with its two ends, in
// the place of the key.

import { h, setText } from "../dom.js";
import { VALUES } from "../trace/values.js";

export class ColourBy {
  constructor(stage) {
    Object.assign(this, { stage, name: "state", guessing: true, trace: null });
    const option = (name) => h("option", { value: name }, VALUES[name]?.label ?? "State");
    const options = ["state", ...Object.keys(VALUES)].map(option);
    this.select = h("select.sl-speed", { onchange: () => this.choose(this.select.value) }, options);
    this.low = h("span");
    this.high = h("span");
    const ramp = h("span.sl-scale-ramp", { "aria-hidden": "true" });
    this.called = h("span");
    this.scale = h("span.sl-scale", { hidden: true }, this.called, this.low, ramp, this.high); // it stands where the key did
    const guess = ({ target }) => {
      this.guessing = target.checked;
      this.stage.redraw();
    };
    const checkbox = h("input", { type: "checkbox", checked: true, onchange: guess });
    const title = "What the model would write now, in the masked cells that the step computed";
    const guesses = h("label", { title }, checkbox, " Guesses");
    this.node = h("span.sl-choice", h("label", "Colours ", this.select), guesses);
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

  /** Whether guesses are shown; not where a lesson asks which cells are written next: they would tell. */
  get guesses() {
    return this.guessing && this.stage.root.dataset.guess !== "cells";
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
