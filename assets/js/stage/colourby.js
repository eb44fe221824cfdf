// Controls for the colours of cells, which show the state or a value on a scale, and for guesses in masked cells.
// A list is beside the key. If cells show a value, the scale with its two ends replaces the key.

import { h, setText } from "../dom.js";
import { page } from "../run/state.js";
import { VALUES } from "../trace/values.js";

const GUESSES = "What the model would write now, in the masked cells that the step computed";

/** The controls. */
export class ColourBy {
  #guessing = true;

  constructor() {
    const option = (name) => h("option", { value: name }, VALUES[name]?.label ?? "State");
    const options = ["state", ...Object.keys(VALUES)].map(option);
    this.select = h("select.sl-speed", { onchange: () => this.choose(this.select.value) }, options);
    this.low = h("span");
    this.high = h("span");
    const ramp = h("span.sl-scale-ramp", { "aria-hidden": "true" });
    this.called = h("span");
    this.scale = h("span.sl-scale", { hidden: true }, this.called, this.low, ramp, this.high); // replaces the key
    const onchange = ({ target }) => {
      this.#guessing = target.checked;
      this.#guess();
    };
    const checkbox = h("input", { type: "checkbox", checked: true, onchange });
    const guesses = h("label", { title: GUESSES }, checkbox, " Guesses");
    this.node = h("span.sl-choice", h("label", "Colours ", this.select), guesses);
    page.follow(["laid", "ended", "colour"], (now) => this.#tell(now));
    page.follow(["lesson"], () => this.#guess());
  }

  get name() {
    return page.now.colour;
  }

  choose(name) {
    if (![...this.select.options].some(({ value }) => value === name)) return;
    page.set({ colour: name, looked: {} });
  }

  /** Shows guesses, unless a lesson asks which cells are written next: guesses would reveal the answer. */
  #guess() {
    page.set({ guesses: this.#guessing && page.now.lesson?.guess !== "cells" });
  }

  #tell({ colour, trace }) {
    this.select.value = colour;
    const value = VALUES[colour];
    this.scale.hidden = !value;
    if (!value || !trace) return;
    const [low, high] = value.ends(trace);
    setText(this.called, `${value.label}:`);
    setText(this.low, low);
    setText(this.high, high);
  }
}
