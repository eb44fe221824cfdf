// The component with the one to four lanes of a race, in the sidebar.
// Its value is JSON: {lanes: [{id, name, preset, compute, unmask}, ...], presets: [...]}.
// The list that shows the lanes (lane_list.js) is loaded when it comes into view.

import { h } from "../dom.js";
import { codesIn } from "../run/address.js";
import { page, say } from "../run/state.js";
import { MISSING, Part } from "../stage/part.js";
import { described, namesApart, presetName, ruleName, rulesOf, serverChoice, unnumbered } from "../trace/described.js";
import { codesOf, putCodes } from "../trace/typed.js";

const FORM_MS = 60; // by then the form has the other fields of the same answer

class Lanes {
  constructor({ element, props, watch }) {
    Object.assign(this, { props, lanes: [], presets: [] });
    const box = element.querySelector(".sl-lanes");
    box.replaceChildren(h("h3.sl-lanes-title", "Lanes"));
    this.shown = new Part(
      () => import("./lane_list.js"),
      ({ LaneList }) => new LaneList(this, box),
      () => say(MISSING, "error"),
    );
    watch("value", () => this.#take());
    this.#take();
    page.follow(["form"], ({ form }) => form && this.shown.use());
  }

  #take() {
    const { lanes, presets, arrived, examples = [], knows = "" } = JSON.parse(this.props.value || "{}");
    if (!lanes || this.props.value === this.sent) return;
    if (arrived) putCodes(lanes, codesIn(location.hash));
    Object.assign(this, { lanes, presets });
    for (const lane of lanes) this.#recognize(lane);
    page.set({ presets, examples, knows, ...this.#needs() });
    if (arrived) setTimeout(() => page.set({ arrived }), FORM_MS);
    const named = namesApart(lanes.map((lane) => this.nameOf(lane)));
    if (lanes.some(({ name }, i) => name !== named[i])) this.send();
    else this.shown.made?.draw();
  }

  /** Gives the lanes ids and different names, and sends them to the form. */
  send() {
    const names = namesApart(this.lanes.map((lane) => this.nameOf(lane).slice(0, 80)));
    for (const [i, lane] of this.lanes.entries()) Object.assign(lane, { id: `lane-${i + 1}`, name: names[i] });
    const { examples, knows } = page.now;
    this.sent = JSON.stringify({ lanes: this.lanes, presets: this.presets, examples, knows });
    this.props.value = this.sent;
    page.set(this.#needs());
    this.shown.made?.draw();
  }

  /** {typed, served}: whether a lane needs a browser, and the name of a rule or policy that needs the server, or "". */
  #needs() {
    return { typed: codesOf(this.lanes).length > 0, served: this.lanes.map(serverChoice).find(Boolean) ?? "" };
  }

  preset(id) {
    return this.presets.find((preset) => preset.id === id);
  }

  nameOf(lane) {
    if (lane.named) return lane.named;
    const base = this.preset(lane.base ?? lane.preset);
    if (!base) return ruleName(lane);
    const firstRule = ({ compute }) => rulesOf(compute)[0].kind;
    if (firstRule(lane) === firstRule(base)) return presetName(lane, base);
    if (lane.unmask.kind !== base.unmask.kind) return ruleName(lane);
    // The name leaves out the default policy, so the preset's is left out.
    const [usual] = Object.keys(described.unmask);
    return ruleName({ ...lane, unmask: { kind: usual } });
  }

  /** Finds the preset of a lane by the lane's name. A name that belongs to no rule or preset is the visitor's. */
  #recognize(lane) {
    if (lane.preset) return;
    const plain = unnumbered(lane.name);
    const base = this.presets.find((preset) => [preset.name, presetName(lane, preset)].includes(plain));
    lane.base = base?.id;
    if (!base && ![ruleName(lane), "Your own"].includes(plain)) lane.named = lane.name;
  }
}

/** Fills the component of the lanes. */
export function connect(component) {
  return new Lanes(component);
}
