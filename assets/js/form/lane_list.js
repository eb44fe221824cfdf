// The list of the form's lanes, with the fields of their rules and policies. The fields are made from descriptions.

import "../loaded_first.js";
import { h, select } from "../dom.js";
import { page } from "../run/state.js";
import { described, rulesOf, sentence } from "../trace/described.js";
import { MOST_LANES } from "../trace/states.js";
import { checkbox, choice, field, row } from "./fields.js";
import { paysLine } from "./pays.js";

const OWN = "own";
/** The rules that only choose rows. They can be combined with a rule that locks. */
const choosers = () => Object.entries(described.compute).filter(([kind, { locks }]) => !locks && kind !== "everything");
/** Whether a rule or a policy can be computed by this page: some need a browser, others a server. */
const offered = ([kind, { server }]) => {
  const needed = kind === "own" ? "browser" : server && "server";
  return !needed || page.now.sources.includes(needed);
};
/** [kind, text]: the option of a rule or policy in a list. */
const optionOf = ([kind, { label, server }]) => [kind, server ? `${label} (on the server)` : label];
const defaults = (settings) =>
  Object.fromEntries(Object.entries(settings).map(([name, setting]) => [name, setting.default]));
const defaultsOf = (table, kind) => ({ kind, ...defaults(table[kind].settings) });

const pick = ({ id, name, compute, unmask }) => ({ preset: id, name, ...structuredClone({ compute, unmask }) });

function nameField(value, set) {
  const control = h("input", { type: "text", value, maxlength: 80, onchange: () => set(control.value) });
  return row({ label: "Name", help: "If empty, it is made of the rule and its settings." }, control);
}

/** The list of lanes. */
export class LaneList {
  /** form: a Lanes; box: the node that contains the list. */
  constructor(form, box) {
    this.form = form;
    this.list = h("ol.sl-lane-list");
    this.add = h("button.sl-small", { onclick: () => this.#add() }, "Add a lane");
    box.append(this.list, this.add, paysLine());
    this.draw();
  }

  #add() {
    const used = new Set(this.form.lanes.map(({ preset }) => preset));
    const next = this.form.presets.find(({ id }) => !used.has(id)) ?? this.form.presets[0];
    this.form.lanes.push({ id: "", ...pick(next) });
    this.form.send();
    this.list.lastElementChild.querySelector("select").focus();
  }

  draw() {
    const open = new Set([...this.list.querySelectorAll("details[open]")].map(({ dataset }) => Number(dataset.lane)));
    const controls = () => [...this.list.querySelectorAll("select, input, textarea, button, summary")];
    const focused = controls().indexOf(document.activeElement);
    this.list.replaceChildren(...this.form.lanes.map((lane, i) => this.#lane(lane, i, open.has(i))));
    if (focused >= 0) controls()[focused]?.focus(); // the focused control was replaced
    this.add.disabled = this.form.lanes.length >= MOST_LANES;
    this.add.title = this.add.disabled ? `At most ${MOST_LANES} can race` : "";
  }

  #lane(lane, i, open) {
    const presets = [
      ...this.form.presets.map(({ id, name }) => [id, name]),
      [OWN, lane.preset ? "Your own …" : lane.name],
    ];
    const attributes = { "aria-label": `Lane ${i + 1}`, onchange: ({ target }) => this.#choose(lane, target.value) };
    const choose = select("select.sl-lane-preset", attributes, presets, lane.preset || OWN);
    const onclick = () => {
      this.form.lanes.splice(i, 1);
      this.form.send();
    };
    const removes = { "aria-label": `Remove lane ${i + 1}`, title: "Remove", onclick };
    const remove = h("button.sl-lane-remove", { ...removes, disabled: this.form.lanes.length === 1 }, "✕");
    const description = this.form.preset(lane.preset)?.sentence ?? sentence(lane);
    const details = h(
      "details.sl-lane-details",
      { "data-lane": i, open },
      h("summary", description),
      this.#fields(lane),
    );
    return h(`li.sl-lane.sl-lane-${i + 1}`, h("div.sl-lane-head", choose, remove), details);
  }

  #choose(lane, id) {
    const preset = this.form.preset(id);
    Object.assign(lane, preset ? pick(preset) : { preset: null }, { base: undefined, named: null });
    this.form.send();
    if (!preset) this.list.children[this.form.lanes.indexOf(lane)].querySelector("details").open = true;
  }

  /**
   * Sets a value that the visitor has changed. The lane is no preset any more, but is named after its former preset.
   */
  #set(lane, target, name, value) {
    target[name] = value;
    if (lane.preset) Object.assign(lane, { base: lane.preset, preset: null });
    this.form.send();
  }

  #fields(lane) {
    const [rule, beside] = rulesOf(lane.compute);
    const kinds = (table) =>
      Object.entries(table)
        .filter((entry) => offered(entry) || entry[0] === rule.kind)
        .map(optionOf);
    const sets = (name) => (kind) => this.#set(lane, lane, name, defaultsOf(described[name], kind));
    const rows = [
      nameField(this.form.nameOf(lane), (name) => {
        lane.named = name.trim().slice(0, 80) || null;
        this.form.send();
      }),
      choice("Computes", kinds(described.compute), rule.kind, sets("compute")),
      ...this.#settings(lane, rule, described.compute[rule.kind]),
    ];
    if (described.compute[rule.kind].locks) {
      const choosable = choosers().filter(offered);
      const others = [["", "all that is not locked"], ...choosable.map(optionOf)];
      const set = (kind) => {
        const both = kind && { kind: "both", lock: rule, select: defaultsOf(described.compute, kind) };
        this.#set(lane, lane, "compute", both || rule);
      };
      rows.push(choice("Of the remaining positions, compute", others, beside?.kind ?? "", set));
      if (beside) rows.push(...this.#settings(lane, beside, described.compute[beside.kind]));
    }
    rows.push(choice("Writes", kinds(described.unmask), lane.unmask.kind, sets("unmask")));
    rows.push(...this.#settings(lane, lane.unmask, described.unmask[lane.unmask.kind]));
    return h("div.sl-lane-fields", rows);
  }

  #settings(lane, values, { settings }) {
    return Object.entries(settings).flatMap(([name, setting]) => {
      const set = (value) => this.#set(lane, values, name, value);
      if (setting.kind !== "group") return field(setting, values[name], set);
      const first = checkbox(setting, Boolean(values[name]), (on) => set(on ? defaults(setting.settings) : null));
      return [first, ...(values[name] ? this.#settings(lane, values[name], setting) : [])];
    });
  }
}
