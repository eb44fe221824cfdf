// The form of a page without a server. It offers the fields of surelock/ui/form.py, made from the same descriptions,
// but no choice of a model and no chat template.

import { h, setText } from "../dom.js";
import { readLink } from "../run/link.js";
import { described } from "../trace/described.js";
import { connect as connectControls } from "./controls.js";
import { choice, field, row } from "./fields.js";
import { connect as connectLanes } from "./lanes.js";
import { blockChoices, blockSaid, fit, NAMES, wantsOf } from "./schedule.js";

const MAIN = ["gen_length", "steps"]; // the fields that are shown at once
const bytes = (text) => new TextEncoder().encode(text).length;

/** The form. */
export class SiteForm {
  /**
   * initial: {model, about, prompt, values, lanes, most}, the first content of the form, see surelock/ui/site.py.
   * onRun(values): called when Run is pressed. onEdit(values): called after a change.
   */
  constructor({ initial, onRun, onEdit }) {
    Object.assign(this, { initial, onEdit, lanes: initial.lanes });
    this.prompt = h("textarea", { rows: 4, "aria-label": "Prompt", oninput: () => this.#changed() });
    const run = h("button", { id: "sl-run", onclick: () => onRun(this.values) }, "Run");
    const controls = h("div", h("div.sl-controls"));
    const lanes = h("div", h("div.sl-lanes"));
    this.main = h("div.sl-fields");
    this.more = h("div.sl-fields");
    const prompt = h("div", { id: "sl-prompt" }, row({ label: "Prompt" }, this.prompt));
    const more = h("details", h("summary", "More settings"), this.more);
    const form = h("div.sl-form", h("p.sl-model-badge", initial.about), prompt, run, controls, lanes, this.main, more);
    this.node = h("aside.sidebar", { "aria-label": "Settings" }, this.#toggle(), form);
    this.set(initial);
    document.body.prepend(this.node);
    connectControls({ element: controls });
    connectLanes({ element: lanes, props: this, watch: (_, f) => Object.assign(this, { onLanes: f }) });
  }

  #toggle() {
    const onclick = () => {
      const open = this.node.classList.toggle("open");
      document.body.classList.toggle("sl-form-open", open);
      toggle.setAttribute("aria-expanded", String(open));
      setText(toggle, open ? "✕" : "☰");
    };
    const toggle = h("button.toggle-button", { "aria-label": "Settings", "aria-expanded": "false", onclick }, "☰");
    return toggle;
  }

  /** The lanes as JSON. It is called `value` because a component of Gradio has its content in a property `value`. */
  get value() {
    return this.lanes;
  }
  set value(lanes) {
    this.lanes = lanes;
    this.onEdit(this.values);
  }

  /** The values of all fields by name, see `settingsOfForm`. */
  get values() {
    const { lanes, prompt, settings, initial } = this;
    return { model: initial.model, prompt: prompt.value, lanes, ...settings };
  }

  set({ prompt, values }) {
    this.prompt.value = prompt;
    this.settings = values;
    this.wants = wantsOf(values);
    this.#draw();
  }

  /**
   * Fills the form from the query of a link, and the rest with first values. The lanes get the sentence on what could
   * not be read.
   */
  fill(query) {
    const { model, prompt, values: first } = this.initial;
    const { values, lanes, said } = readLink(query, model);
    const { prompt: text = prompt, ...settings } = values;
    const { steps, block_length, ...others } = first;
    const follows = "gen_length" in settings ? others : first;
    this.set({ prompt: text, values: { ...follows, ...settings } });
    const held = JSON.parse(this.initial.lanes);
    this.value = JSON.stringify({ ...held, lanes: lanes ?? held.lanes, arrived: { said } });
    this.onLanes();
  }

  #changed() {
    this.#draw();
    this.onEdit(this.values);
  }

  #change(name, value) {
    const follows = NAMES.includes(name) && name !== "gen_length" && value === this.settings.gen_length;
    if (NAMES.includes(name)) this.wants = { ...this.wants, [name]: follows ? null : value };
    else this.settings = { ...this.settings, [name]: value };
    this.#changed();
  }

  /** The most tokens that can be generated after the prompt, at least 16. A byte of the prompt counts as a token. */
  get #longest() {
    const room = this.initial.most - bytes(this.prompt.value);
    return Math.max(16, room - (room % 8));
  }

  #draw() {
    const longest = this.#longest;
    this.settings = { ...this.settings, ...fit(this.wants, longest) };
    const { gen_length: length, steps } = this.settings;
    const focused = document.activeElement?.closest(".sl-field")?.id;
    const highest = { gen_length: longest, steps: length };
    const fieldOf = ([name, setting]) => {
      const set = (value) => this.#change(name, value);
      const isBlocks = name === "block_length";
      const node = isBlocks ? this.#blocks(length, steps, set) : this.#field(name, setting, highest, set);
      node.id = `sl-${name.replaceAll("_", "-")}`;
      return node;
    };
    const settings = Object.entries(described.settings);
    const main = settings.filter(([name]) => MAIN.includes(name));
    const more = settings.filter(([name]) => !MAIN.includes(name));
    this.main.replaceChildren(...main.map(fieldOf));
    this.more.replaceChildren(...more.map(fieldOf));
    // The focused field was replaced.
    if (focused) document.getElementById(focused)?.querySelector("input, select")?.focus();
  }

  #field(name, setting, highest, set) {
    const { offered, none, ...description } = setting;
    const [low, high, step] = offered ?? [];
    const stops = offered && { offered: [low, highest[name] ?? high, step] };
    return field({ ...description, ...stops }, this.settings[name], set);
  }

  #blocks(length, steps, set) {
    const choices = blockChoices(length, steps).map((block) => [block, String(block)]);
    const said = blockSaid(this.wants.block_length, this.settings);
    return choice("Block length", choices, this.settings.block_length, (text) => set(Number(text)), said);
  }
}
