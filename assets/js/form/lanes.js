// Who races: one to four lanes in the sidebar, each a preset or a decoder of the visitor's own. The component's value is
// JSON: {lanes: [{id, name, preset, compute, unmask}, ...], presets: [...]}. The fields of a rule are made from its
// description, so a new setting appears here by itself.

import { h } from "../dom.js";
import { codesIn } from "../run/address.js";
import { page } from "../run/state.js";
import { described, namesApart, presetName, ruleName, rulesOf, sentence, unnumbered } from "../trace/described.js";
import { MOST_LANES } from "../trace/trace.js";
import { putCodes } from "../trace/typed.js";
import { checkbox, field, row, select } from "./fields.js";

const OWN = "own";
/** Rules that only choose can stand beside one that locks. */
const choosers = () => Object.entries(described.compute).filter(([kind, { locks }]) => !locks && kind !== "everything");
/** A typed rule only where the browser decodes. */
const offered = ([kind]) => kind !== "own" || page.now.sources.includes("browser");
const defaults = (settings) =>
  Object.fromEntries(Object.entries(settings).map(([name, setting]) => [name, setting.default]));
const defaultsOf = (table, kind) => ({ kind, ...defaults(table[kind].settings) });

class Lanes {
  constructor({ element, props, watch }) {
    Object.assign(this, { props, lanes: [], presets: [] });
    this.list = h("ol", { class: "sl-lane-list" });
    this.add = h("button", { type: "button", class: "sl-small", onclick: () => this.#add() }, "Add a lane");
    const title = h("h3", { class: "sl-lanes-title" }, "Lanes");
    element.querySelector(".sl-lanes").replaceChildren(title, this.list, this.add);
    watch("value", () => this.#take());
    this.#take();
  }

  #take() {
    const { lanes, presets, arrived } = JSON.parse(this.props.value || "{}");
    if (!lanes || this.props.value === this.sent) return;
    if (arrived) putCodes(lanes, codesIn(location.hash));
    Object.assign(this, { lanes, presets });
    for (const lane of lanes) this.#recognize(lane);
    page.set({ presets, ...(arrived && { arrived }) });
    const named = namesApart(lanes.map((lane) => this.#nameOf(lane)));
    if (lanes.some(({ name }, i) => name !== named[i])) this.#send();
    else this.#draw();
  }

  /** Names and ids anew, so that no two lanes are called the same; then to the form. */
  #send() {
    const names = namesApart(this.lanes.map((lane) => this.#nameOf(lane).slice(0, 80)));
    for (const [i, lane] of this.lanes.entries()) Object.assign(lane, { id: `lane-${i + 1}`, name: names[i] });
    this.sent = JSON.stringify({ lanes: this.lanes, presets: this.presets });
    this.props.value = this.sent;
    this.#draw();
  }

  #preset(id) {
    return this.presets.find((preset) => preset.id === id);
  }

  /** The preset's name, and what differs from it. */
  #nameOf(lane) {
    if (lane.named) return lane.named;
    const base = this.#preset(lane.base ?? lane.preset);
    if (!base) return ruleName(lane);
    const [rule, own] = [lane, base].map(({ compute }) => rulesOf(compute)[0].kind);
    if (rule === own) return presetName(lane, base);
    const [usual] = Object.keys(described.unmask); // of another rule its policy is told where it is not the preset's
    return ruleName(lane.unmask.kind === base.unmask.kind ? { ...lane, unmask: { kind: usual } } : lane);
  }

  /** Which preset a lane was made of, by its name; a name that neither its rule nor a preset gives it is the visitor's. */
  #recognize(lane) {
    if (lane.preset) return;
    const plain = unnumbered(lane.name);
    const made = this.presets.find((preset) => [preset.name, presetName(lane, preset)].includes(plain));
    lane.base = made?.id;
    if (!made && ![ruleName(lane), "Your own"].includes(plain)) lane.named = lane.name;
  }

  #add() {
    const used = new Set(this.lanes.map(({ preset }) => preset));
    const next = this.presets.find(({ id }) => !used.has(id)) ?? this.presets[0];
    this.lanes.push({ id: "", ...pick(next) });
    this.#send();
    this.list.lastElementChild.querySelector("select").focus();
  }

  #draw() {
    const open = new Set([...this.list.querySelectorAll("details[open]")].map(({ dataset }) => Number(dataset.lane)));
    const controls = () => [...this.list.querySelectorAll("select, input, textarea, button, summary")];
    const focused = controls().indexOf(document.activeElement);
    this.list.replaceChildren(...this.lanes.map((lane, i) => this.#lane(lane, i, open.has(i))));
    if (focused >= 0) controls()[focused]?.focus(); // drawn anew under the visitor's hands
    this.add.disabled = this.lanes.length >= MOST_LANES;
    this.add.title = this.add.disabled ? `At most ${MOST_LANES} can race` : "";
  }

  #lane(lane, i, open) {
    const options = this.presets.map(({ id, name }) => h("option", { value: id, selected: lane.preset === id }, name));
    const own = h("option", { value: OWN, selected: !lane.preset }, lane.preset ? "Your own …" : lane.name);
    const choose = h("select", { class: "sl-lane-preset", "aria-label": `Lane ${i + 1}` }, options, own);
    choose.addEventListener("change", () => this.#choose(lane, choose.value));
    const remove = h(
      "button",
      {
        type: "button",
        class: "sl-lane-remove",
        "aria-label": `Remove lane ${i + 1}`,
        title: "Remove",
        disabled: this.lanes.length === 1,
        onclick: () => {
          this.lanes.splice(i, 1);
          this.#send();
        },
      },
      "✕",
    );
    const told = this.#preset(lane.preset)?.sentence ?? sentence(lane);
    const details = h(
      "details",
      { class: "sl-lane-details", "data-lane": i, open },
      h("summary", {}, told),
      this.#fields(lane),
    );
    return h("li", { class: `sl-lane sl-lane-${i + 1}` }, h("div", { class: "sl-lane-head" }, choose, remove), details);
  }

  #choose(lane, id) {
    const preset = this.#preset(id);
    if (preset) Object.assign(lane, pick(preset), { base: undefined, named: null });
    else Object.assign(lane, { preset: null, base: undefined, named: null });
    this.#send();
    if (!preset) this.list.children[this.lanes.indexOf(lane)].querySelector("details").open = true;
  }

  /** A value was set by hand: the lane is the visitor's own from now on, named after where it came from. */
  #set(lane, target, name, value) {
    target[name] = value;
    if (lane.preset) Object.assign(lane, { base: lane.preset, preset: null });
    this.#send();
  }

  #fields(lane) {
    const [rule, beside] = rulesOf(lane.compute);
    const kinds = (table) =>
      Object.entries(table)
        .filter((each) => offered(each) || each[0] === rule.kind)
        .map(([kind, { label }]) => [kind, label]);
    const rows = [
      nameField(this.#nameOf(lane), (name) => {
        lane.named = name.trim().slice(0, 80) || null;
        this.#send();
      }),
      select("Computes", kinds(described.compute), rule.kind, (kind) =>
        this.#set(lane, lane, "compute", defaultsOf(described.compute, kind)),
      ),
      ...this.#settings(lane, rule, described.compute[rule.kind]),
    ];
    if (described.compute[rule.kind].locks) {
      const others = [["", "all that is not locked"], ...choosers().map(([kind, { label }]) => [kind, label])];
      rows.push(
        select("Of the remaining positions, compute", others, beside?.kind ?? "", (kind) => {
          const both = kind && { kind: "both", lock: rule, select: defaultsOf(described.compute, kind) };
          this.#set(lane, lane, "compute", both || rule);
        }),
      );
      if (beside) rows.push(...this.#settings(lane, beside, described.compute[beside.kind]));
    }
    rows.push(
      select("Writes", kinds(described.unmask), lane.unmask.kind, (kind) =>
        this.#set(lane, lane, "unmask", defaultsOf(described.unmask, kind)),
      ),
      ...this.#settings(lane, lane.unmask, described.unmask[lane.unmask.kind]),
    );
    return h("div", { class: "sl-lane-fields" }, rows);
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

const pick = ({ id, name, compute, unmask }) => ({
  preset: id,
  name,
  compute: structuredClone(compute),
  unmask: structuredClone(unmask),
});

function nameField(value, set) {
  const control = h("input", { type: "text", value, maxlength: 80 });
  control.addEventListener("change", () => set(control.value));
  return row({ label: "Name", help: "If empty, it is made of the rule and its settings." }, control);
}

export function connect(component) {
  return new Lanes(component);
}
