// What a narrow screen needs: one lane at a time with its name to press, and the inspector as a sheet from below.

import { h } from "./dom.js";

export const isNarrow = () => matchMedia("(max-width: 760px)").matches;

/** Names above the grids, which lie side by side there: a press or a swipe leads from one to the other. */
export class LaneSwitch {
  constructor(grids) {
    this.grids = grids;
    this.node = h("div", { class: "sl-switch", role: "group", "aria-label": "Whose grid is shown" });
    grids.addEventListener("scroll", () => this.#mark(), { passive: true });
  }

  /** sides: the stage's, in the order of the lanes; the reference comes last on a narrow screen. */
  load(sides) {
    const last = ({ node }) => node.dataset.reference !== undefined;
    this.shown = [...sides].sort((a, b) => last(a) - last(b));
    this.buttons = this.shown.map((side) =>
      h("button", { type: "button", class: "sl-switch-lane", onclick: () => this.#show(side) }, side.lane.name),
    );
    this.node.replaceChildren(...this.buttons);
    this.node.hidden = sides.length < 2;
    this.grids.scrollLeft = 0;
    this.#mark();
  }

  #show({ node }) {
    this.grids.scrollTo({ left: node.offsetLeft - this.shown[0].node.offsetLeft });
  }

  #mark() {
    const at = Math.round(this.grids.scrollLeft / Math.max(1, this.grids.clientWidth));
    this.buttons?.forEach((button, i) => {
      button.setAttribute("aria-pressed", String(i === at));
    });
  }
}

/** The inspector as a sheet: above the player, never over the cell it speaks of. On a wide screen it does nothing. */
export class Sheet {
  constructor({ inspector, player, onClose }) {
    Object.assign(this, { inspector, player, onClose });
    this.button = h("button", { type: "button", class: "sl-sheet-close", onclick: () => this.close() }, "Close");
    inspector.append(this.button);
    const own = ".sl-inspector, .sl-timeline, canvas.sl-grid";
    const outside = (event) => !event.target.closest?.(own) && this.close();
    const onKey = (event) => event.key === "Escape" && this.close();
    document.addEventListener("click", outside, true); // before what is pressed opens it again
    document.addEventListener("keydown", onKey);
    this.stop = () => {
      document.removeEventListener("click", outside, true);
      document.removeEventListener("keydown", onKey);
    };
  }

  get isOpen() {
    return this.inspector.classList.contains("sl-open");
  }

  /** at: the cell's {top, bottom} in the window. */
  open(at) {
    if (!isNarrow()) return;
    this.inspector.classList.add("sl-open");
    const player = this.player.getBoundingClientRect();
    const stuck = player.bottom > innerHeight - 60; // else it has been scrolled away, and leaves the edge free
    this.inspector.style.setProperty("--sl-player", `${stuck ? innerHeight - player.top + 6 : 8}px`);
    const edge = this.inspector.getBoundingClientRect().top - 12;
    if (at.top < 8 || at.bottom > edge) scrollBy({ top: at.bottom - edge });
  }

  close() {
    if (!this.isOpen) return;
    this.inspector.classList.remove("sl-open");
    this.onClose();
  }
}

/** Run and the way to the prompt, for where the sidebar is closed. press(): Run; openForm(): the sidebar. */
export function phoneActions({ press, openForm }) {
  return h(
    "div",
    { class: "sl-phone-actions" },
    h("button", { type: "button", class: "sl-phone-run", onclick: press }, "Run"),
    h("button", { type: "button", class: "sl-phone-form", onclick: openForm }, "Change prompt or settings"),
  );
}
