// Presenter mode shows the race on one screen, large enough for the back row of a room. F or ?present begins it, F or
// Escape ends it. The zoom of the stage enlarges everything. A grid that does not fit scrolls to the latest tokens.

import { h, isNarrow } from "../dom.js";
import { page } from "../run/state.js";
import { letterKeys } from "./keys.js";

const MODE = "sl-present";
const LARGER = 1.6;
const ROOM = [1200, 675]; // the pixels in which a run of 140 positions fits; larger screens enlarge it more
const CALM = 0.15; // a grid scrolls if the latest tokens are closer to an edge than this share of its height

/** Presenter mode of a stage. */
export class Presenter {
  /** Adds presenter mode to a stage. */
  constructor({ root, floor }) {
    Object.assign(this, { root, floor });
    this.ring = h("div.sl-pointer", { hidden: true, "aria-hidden": "true" });
    document.body.append(this.ring);
    document.addEventListener("fullscreenchange", () => {
      if (!document.fullscreenElement) this.leave();
      else if (!this.on) this.#shrink(); // the visitor left before the browser had switched to full screen
    });
    document.addEventListener("pointermove", (event) => this.#point(event));
    document.documentElement.addEventListener("pointerleave", () => this.#hideRing());
    addEventListener("resize", () => this.#size());
    letterKeys({ Escape: () => this.leave() });
    page.follow(
      ["drawn"],
      ({ trace, drawn: { step } }) => trace && this.#follow((lane) => trace.race.reached(lane, step)),
    );
    page.follow(["hover"], ({ hover }) => floor.cells.led && this.#revealAll(hover));
  }

  get on() {
    return page.now.presents;
  }

  #turn(on) {
    document.body.classList.toggle(MODE, on);
    this.#size();
    page.set({ presents: on });
  }

  toggle() {
    if (this.on) this.leave();
    else this.enter();
  }

  enter() {
    if (isNarrow()) return; // phones have no presenter mode
    this.#turn(true);
    // Refused unless a key was pressed; the mode works without it.
    document.documentElement.requestFullscreen?.().catch(() => {});
  }

  leave() {
    if (!this.on) return;
    this.#turn(false);
    this.root.style.removeProperty("--sl-larger");
    this.#hideRing();
    this.#shrink();
  }

  #shrink() {
    if (document.fullscreenElement) document.exitFullscreen().catch(() => {});
  }

  /** Scrolls the grids to the latest tokens of their lanes. stepOf(lane): returns the lane's step. */
  #follow(stepOf) {
    if (!this.on) return;
    for (const side of this.floor.sides) {
      const written = side.lane.steps[stepOf(side.lane)]?.unmasked ?? [];
      this.#reveal(side, written[written.length >> 1] ?? 0);
    }
  }

  /** Scrolls all grids to a cell, the one that the keyboard has reached. */
  #revealAll(cell) {
    if (this.on && cell >= 0) for (const side of this.floor.sides) this.#reveal(side, cell);
  }

  #reveal({ grid, box: view }, cell) {
    if (!grid.box || view.classList.contains("sl-window-long")) return; // longtext.js scrolls long texts
    const [, top, , height] = grid.rect(cell);
    const room = view.clientHeight;
    const low = view.scrollTop + CALM * room;
    const high = view.scrollTop + (1 - CALM) * room;
    if (top < low || top + height > high) view.scrollTop = top + height / 2 - room / 2;
  }

  #size() {
    if (!document.body.classList.contains(MODE)) return;
    const larger = Math.max(LARGER, Math.min(innerWidth / ROOM[0], innerHeight / ROOM[1]));
    this.root.style.setProperty("--sl-larger", larger.toFixed(3));
  }

  #point(event) {
    if (!this.on || event.pointerType !== "mouse") return this.#hideRing();
    this.ring.hidden = false;
    this.ring.style.transform = `translate(${event.clientX}px, ${event.clientY}px)`;
  }

  #hideRing() {
    this.ring.hidden = true;
  }
}
