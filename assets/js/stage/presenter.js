// Presenter mode: what matters on one screen, large enough for the back row. F or ?present begins it, F or Escape ends it.
// Everything grows by one number, the stage's zoom; a grid that no longer fits becomes a window that follows what is written.

import { h, isNarrow } from "../dom.js";
import { letterKeys } from "./keys.js";
import { icon } from "./timeline.js";

const MODE = "sl-present";
const LARGER = 1.6;
const CORNERS = "M4 9V4h5v2H6v3zM15 4h5v5h-2V6h-3zM4 15h2v3h3v2H4zM18 15h2v5h-5v-2h3z";
const ROOM = [1200, 675]; // what the stage needs to show a run of 140 positions whole; larger screens magnify more
const CALM = 0.15; // a window moves when the action comes this close to its upper or lower edge

export class Presenter {
  constructor(stage) {
    this.stage = stage;
    const told = { "aria-label": "Present", title: "Present on the full screen (F)" };
    this.button = h("button.sl-tool.sl-present-button", { ...told, onclick: () => this.toggle() }, icon(CORNERS));
    this.ring = h("div.sl-pointer", { hidden: true, "aria-hidden": "true" });
    document.body.append(this.ring);
    document.addEventListener("fullscreenchange", () => {
      if (!document.fullscreenElement) this.leave();
      else if (!this.on) this.#shrink(); // left before the full screen had come
    });
    document.addEventListener("pointermove", (event) => this.#point(event));
    document.documentElement.addEventListener("pointerleave", () => this.#hideRing());
    addEventListener("resize", () => this.#size());
    letterKeys({ f: () => this.toggle(), Escape: () => this.leave() });
    if (new URLSearchParams(location.search).has("present")) this.enter();
  }

  get on() {
    return document.body.classList.contains(MODE);
  }

  toggle() {
    if (this.on) this.leave();
    else this.enter();
  }

  enter() {
    if (isNarrow()) return; // a phone shows the page that is made for it
    document.body.classList.add(MODE);
    this.#size();
    this.stage.resize();
    document.documentElement.requestFullscreen?.().catch(() => {}); // without a key press it is refused; the mode holds all the same
  }

  leave() {
    if (!this.on) return;
    document.body.classList.remove(MODE);
    this.stage.root.style.removeProperty("--sl-larger");
    this.#hideRing();
    this.stage.resize();
    this.#shrink();
  }

  #shrink() {
    if (document.fullscreenElement) document.exitFullscreen().catch(() => {});
  }

  /** Brings what each lane has written by now into its grid's window. stepOf(lane): the step that it stands at. */
  follow(stepOf) {
    if (!this.on) return;
    for (const side of this.stage.sides) {
      const written = side.lane.steps[stepOf(side.lane)]?.unmasked ?? [];
      this.#reveal(side, written[written.length >> 1] ?? 0);
    }
  }

  /** Brings the cell that the keyboard is on into every window. */
  reveal(cell) {
    if (this.on) for (const side of this.stage.sides) this.#reveal(side, cell);
  }

  #reveal({ grid, box: view }, cell) {
    if (!grid.box || view.classList.contains("sl-window-long")) return; // a long text's own window follows by itself
    const [, top, , height] = grid.rect(cell);
    const room = view.clientHeight;
    const [low, high] = [view.scrollTop + CALM * room, view.scrollTop + (1 - CALM) * room];
    if (top < low || top + height > high) view.scrollTop = top + height / 2 - room / 2;
  }

  #size() {
    if (!this.on) return;
    const larger = Math.max(LARGER, Math.min(innerWidth / ROOM[0], innerHeight / ROOM[1]));
    this.stage.root.style.setProperty("--sl-larger", larger.toFixed(3));
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
