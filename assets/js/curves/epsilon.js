// A handle on a position's KL curve changes epsilon. While it is moved, the grid of its lane shows an estimate of the
// positions that would have locked. A button starts a lane with the new value.

import { explained } from "../below/term.js";
import { count, h, isTouch, setText } from "../dom.js";
import { page, redraw } from "../run/state.js";
import { described, number } from "../trace/described.js";
import { lockRule, locksAt } from "../trace/estimate.js";
import { ACTIVE, LOCKED } from "../trace/states.js";
import { MakeRoom } from "./makeroom.js";
import { nearest, stops } from "./slider.js";

const OFFERED = { offered: [1e-8, 1, 0], log: true };
const lockedIn = (states) => states.filter((state) => state === LOCKED).length;

/** The handle and the estimate at the handle's epsilon. */
export class Epsilon {
  /**
   * headOf(lane): the node of a lane's name.
   * curve: a CellCurve.
   * race(lane, epsilon, gone): adds a lane with this epsilon, and returns the reason if it cannot, or ""; null if the
   * page cannot run lanes.
   */
  constructor({ headOf, curve, race }) {
    Object.assign(this, { headOf, curve, lane: null, value: null, step: -1 });
    this.stops = stops(described.compute.lock?.settings.epsilon ?? OFFERED).filter((x) => x > 0);
    this.handle = h(
      "div.sl-epsilon",
      { role: "slider", tabindex: 0, "aria-orientation": "vertical", "aria-label": "ε of the estimate", hidden: true },
      h("span.sl-epsilon-grip", { "aria-hidden": "true" }, "ε"),
    );
    this.said = h("p.sl-hint", { role: "status" });
    const act = (text, onclick) => h("button.sl-small", { onclick }, text);
    this.room = new MakeRoom();
    const say = (why) => why && setText(this.said, why); // shown until the estimate changes
    const start = (gone) => race(this.lane, this.value, gone);
    const raceIt = () => say(this.room.ask(this.trace, this.lane, start, say));
    this.race = race && act("Race it", raceIt);
    this.back = act("Put it back", () => this.put(null));
    this.actions = h("span.sl-epsilon-actions", { hidden: true }, this.race, this.back);
    this.node = h("div.sl-epsilon-row", { hidden: true }, this.said, this.actions, this.room.node);
    this.badge = h(
      "span.sl-estimate",
      { title: "Only an estimate: with another ε, later steps would differ", hidden: true },
      "Estimate",
    );
    curve.box.append(this.handle);
    this.#listen();
  }

  /** Called for another trace. While a trace grows, nothing is estimated. */
  load(trace) {
    const first = trace.lanes.find((lane) => lane !== trace.reference && lockRule(lane)) ?? trace.lanes.find(lockRule);
    this.trace = trace;
    this.lane = trace.race.live ? null : (first ?? null);
    this.value = null;
    this.estimate = null;
    page.set({ estimate: null });
    this.room.close();
    this.#belongs();
  }

  /** Turns to the lane at which a person points, if it can be estimated and no other lane is being estimated. */
  turnTo(lane) {
    if (!this.lane || this.value !== null || lane === this.lane || !lockRule(lane)) return;
    this.lane = lane;
    this.#belongs();
  }

  /** Puts the handle and the badge to the present lane. */
  #belongs() {
    const { trace } = this;
    if (this.lane) {
      this.full = trace.lanes.find((lane) => lane.steps.every(({ computed }) => computed === lane.n)) ?? null;
      this.headOf(this.lane).after(this.badge);
      this.handle.setAttribute("aria-valuemin", Math.log10(this.stops[0]));
      this.handle.setAttribute("aria-valuemax", Math.log10(this.stops.at(-1)));
    }
    this.node.hidden = !this.lane;
    this.#tell();
    this.place();
  }

  /** The epsilon of the lane's rule. */
  get laneEpsilon() {
    return lockRule(this.lane).epsilon;
  }

  /** Estimates the lane at another epsilon; null ends the estimate. */
  put(value) {
    if (!this.lane) return;
    const wanted = value === null || value === this.laneEpsilon ? null : value;
    const focused = this.actions.contains(document.activeElement);
    this.room.close();
    if (wanted !== this.value) this.estimate = wanted === null ? null : locksAt(this.lane, wanted, this.full);
    this.value = wanted;
    page.set({ estimate: this.estimate && this });
    this.#tell();
    this.place();
    redraw();
    if (focused && wanted === null) this.handle.focus();
  }

  /**
   * The estimated states that the grid of a lane shows at a step instead of its states; undefined without an
   * estimate.
   */
  states(lane, step) {
    if (!this.estimate || lane !== this.lane) return undefined;
    const locked = this.#locked(lane.clamp(step) - 1);
    return lane.row(step).map((state, p) => {
      if (locked[p]) return LOCKED;
      return state === LOCKED ? ACTIVE : state;
    });
  }

  /** Flags of the positions that would be locked after a step of the lane, [n]; empty before its first step. */
  #locked(step) {
    const { lane, estimate } = this;
    const t = lane.clamp(step);
    return estimate.subarray(Math.max(0, t) * lane.n, Math.max(0, (t + 1) * lane.n));
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
    const was = lockedIn(lane.row(t));
    const would = lockedIn(this.states(lane, t) ?? []);
    const whose = `“${lane.name}”`;
    const before = `before its step ${t + 1}`;
    const keys = isTouch() ? "" : " or use the arrow keys";
    const invitation = `Drag ε${keys}: ${whose} shows what would have locked by now.`;
    const estimate = `ε ${number(value)}: ${whose} would have locked ${count(would, "token")} ${before}, not ${was}.`;
    const sentence = value === null ? invitation : estimate;
    if (this.sentence !== sentence) {
      this.sentence = sentence;
      const nodes = value === null ? explained(sentence, ["ε"], { stop: false }) : [sentence];
      this.said.replaceChildren(...nodes);
    }
    const shown = value ?? this.laneEpsilon;
    this.handle.setAttribute("aria-valuenow", Math.log10(shown).toFixed(2));
    const locked = value === null ? `${was} locked` : `${would} locked, not ${was},`;
    this.handle.setAttribute("aria-valuetext", `ε ${number(shown)}, ${whose}: ${locked} ${before}`);
    setText(this.handle.firstChild, value === null ? "ε" : `ε ${number(value)}`);
  }

  place() {
    this.handle.hidden = !this.lane;
    if (!this.lane) return;
    this.handle.style.top = `${100 * this.curve.place(this.value ?? this.laneEpsilon)}%`;
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
      if (grip.hasPointerCapture(pointerId))
        this.put(this.stops[nearest(this.stops, 10 ** this.curve.power(clientY), true)]);
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

  /** The stop that is `by` stops away from the present value. */
  #beside(by) {
    const now = this.value ?? this.laneEpsilon;
    const past = this.stops.filter((x) => (by > 0 ? x > now * 1.001 : x < now / 1.001));
    const at = by > 0 ? by - 1 : past.length + by;
    return past[Math.max(0, Math.min(past.length - 1, at))] ?? now;
  }
}
