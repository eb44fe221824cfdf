// Epsilon by hand: a handle on the KL plot's line. While it is moved, the grid of the lane that it belongs to shows what
// would have locked by now; one click makes the value a contestant.

import { described, number } from "./described.js";
import { h, setText } from "./dom.js";
import { lockRule, locksAt } from "./estimate.js";
import { explained } from "./glossary.js";
import { stops } from "./slider.js";
import { ACTIVE, LOCKED } from "./trace.js";

const OFFERED = { offered: [1e-8, 1, 0], log: true };
const HELP =
  "Drag the ε on the line, or focus it and use the arrow keys: the grid shows what would have locked by now.";

export class Epsilon {
  /** onChange() when the grids are to be drawn anew; race(lane, epsilon) makes a contestant of it or gives a sentence why not, null where none can run. */
  constructor({ curves, onChange, race }) {
    Object.assign(this, { curves, onChange, lane: null, value: null, step: -1 });
    this.stops = stops(described.compute.lock?.settings.epsilon ?? OFFERED).filter((x) => x > 0);
    this.handle = h(
      "div",
      {
        class: "sl-epsilon",
        role: "slider",
        tabindex: 0,
        "aria-orientation": "vertical",
        "aria-label": "ε of the estimate",
        hidden: true,
      },
      h("span", { class: "sl-epsilon-grip", "aria-hidden": "true" }, "ε"),
    );
    this.said = h("p", { class: "sl-hint", role: "status" });
    const act = (text, onclick) => h("button", { type: "button", class: "sl-small", onclick }, text);
    this.race =
      race &&
      act("Race it", () => {
        const why = race(this.lane, this.value);
        if (why) setText(this.said, why); // until the estimate is another
      });
    this.back = act("Put it back", () => this.put(null));
    this.actions = h("span", { class: "sl-epsilon-actions", hidden: true }, this.race, this.back);
    this.node = h("div", { class: "sl-epsilon-row", hidden: true }, this.said, this.actions);
    this.badge = h("span", { class: "sl-estimate", hidden: true }, "Estimate: later steps would change");
    curves.kl.box.append(this.handle);
    curves.kl.node.append(this.node);
    curves.onDrawn = () => this.place();
    this.#listen();
  }

  /** A trace whose records are all there; `side` gives the article of a lane. */
  load(trace, sideOf) {
    const first = trace.lanes.find((lane) => lane !== trace.reference && lockRule(lane)) ?? trace.lanes.find(lockRule);
    this.trace = trace;
    this.lane = trace.live ? null : (first ?? null);
    this.value = null;
    this.when = null;
    if (this.lane) {
      this.full = trace.lanes.find((lane) => lane.steps.every(({ computed }) => computed === lane.n)) ?? null;
      sideOf(this.lane).querySelector("header p").before(this.badge); // and instead of it
      this.handle.setAttribute("aria-valuemin", Math.log10(this.stops[0]));
      this.handle.setAttribute("aria-valuemax", Math.log10(this.stops.at(-1)));
    }
    this.node.hidden = !this.lane;
    this.#tell();
    this.place();
  }

  get own() {
    return lockRule(this.lane).epsilon;
  }

  /** Another epsilon, or null for the run's own. */
  put(value) {
    if (!this.lane) return;
    const wanted = value === null || value === this.own ? null : value;
    const focused = this.actions.contains(document.activeElement);
    if (wanted !== this.value) this.when = wanted === null ? null : locksAt(this.lane, wanted, this.full);
    this.value = wanted;
    this.#tell();
    this.place();
    this.onChange();
    if (focused && wanted === null) this.handle.focus();
  }

  /** What the grid of a lane shows at a step instead of its states, or undefined. */
  states(lane, step) {
    if (!this.when || lane !== this.lane) return undefined;
    const t = lane.clamp(step);
    return lane.row(t).map((state, p) => {
      if (this.when[p] <= t) return LOCKED;
      return state === LOCKED ? ACTIVE : state;
    });
  }

  moveTo(step) {
    this.step = step;
    if (this.lane) this.#tell();
  }

  #tell() {
    const { lane, value } = this;
    this.badge.hidden = value === null;
    this.actions.hidden = value === null;
    if (!lane) return;
    const t = lane.clamp(this.step);
    const was = lane.at(t)?.lockedCount ?? 0;
    const would = this.when?.filter((when) => when <= t).length;
    const told =
      value === null
        ? HELP
        : `ε ${number(value)}: ${would} instead of ${was} locked by now. Estimate: later steps would change.`;
    if (this.told !== told) {
      this.told = told;
      this.said.replaceChildren(...(value === null ? explained(told, ["ε"], { stop: false }) : [told]));
    }
    const shown = value ?? this.own;
    this.handle.setAttribute("aria-valuenow", Math.log10(shown).toFixed(2));
    const count = value === null ? `${was} locked by now` : `${would} instead of ${was} locked by now`;
    this.handle.setAttribute("aria-valuetext", `ε ${number(shown)}, ${count}`);
    setText(this.handle.firstChild, value === null ? "ε" : `ε ${number(value)}`);
  }

  /** Over the line of its value: at the plot's edge where that lies outside. */
  place() {
    const layout = this.curves.kl.plot._fullLayout;
    this.handle.hidden = !this.lane || !layout?._size;
    if (this.handle.hidden) return;
    const { l, t, w, h: height } = layout._size;
    const y = Math.min(height, Math.max(0, layout.yaxis.d2p(this.value ?? this.own)));
    Object.assign(this.handle.style, { left: `${l}px`, width: `${w}px`, top: `${t + y}px` });
    this.handle.classList.toggle("sl-epsilon-moved", this.value !== null);
  }

  #listen() {
    const { handle } = this;
    const grip = handle.firstChild;
    grip.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      handle.focus({ preventScroll: true });
      grip.setPointerCapture(event.pointerId);
    });
    grip.addEventListener("pointermove", ({ pointerId, clientY }) => {
      if (grip.hasPointerCapture(pointerId)) this.put(this.#nearest(clientY));
    });
    handle.addEventListener("keydown", (event) => {
      const by = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1, PageUp: 3, PageDown: -3 }[event.key];
      if (by) this.put(this.#beside(by));
      else if (event.key === "Home") this.put(this.stops[0]);
      else if (event.key === "End") this.put(this.stops.at(-1));
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    for (const node of [handle, this.node])
      node.addEventListener("keydown", (event) => {
        if (event.key !== "Escape" || this.value === null) return;
        this.put(null);
        event.preventDefault();
        event.stopPropagation();
      });
  }

  /** The stop so many further on from the present value. */
  #beside(by) {
    const now = this.value ?? this.own;
    const past = this.stops.filter((x) => (by > 0 ? x > now * 1.001 : x < now / 1.001));
    const at = by > 0 ? by - 1 : past.length + by;
    return past[Math.max(0, Math.min(past.length - 1, at))] ?? now;
  }

  #nearest(clientY) {
    const { plot } = this.curves.kl;
    const { _size: size, yaxis } = plot._fullLayout;
    const wanted = Math.log10(yaxis.p2d(clientY - plot.getBoundingClientRect().top - size.t));
    const far = (x) => Math.abs(Math.log10(x) - wanted);
    return this.stops.reduce((best, x) => (far(x) < far(best) ? x : best));
  }
}
