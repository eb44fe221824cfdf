// Long texts: cells keep a legible size, and the grids scroll inside boxes. All boxes scroll together to the latest
// tokens.

import { h, isNarrow, perFrame, select } from "../dom.js";
import { WHOLE_TOKENS } from "./layout.js";

const NARROW_TOKENS = 160; // the most cells whose tokens a phone shows at once

/** The most cells whose tokens are shown at once. */
export const readable = () => (isNarrow() ? NARROW_TOKENS : WHOLE_TOKENS);

const MODES = [
  ["follow", "Readable, following what is written"],
  ["hand", "Readable, scrolled by hand"],
  ["whole", "The whole canvas, without its tokens"],
];

/** The boxes of all grids, and the list that chooses how long texts are shown. */
export class LongText {
  /** onLayout(): called when cells get another size. onScroll(): called when other cells come into view. */
  constructor({ onLayout, onScroll }) {
    Object.assign(this, { onLayout, onScroll, mode: "follow", boxes: [], top: 0, height: 0, long: false });
    this.select = select("select.sl-speed", { onchange: () => this.#choose(this.select.value) }, MODES);
    const fit = perFrame(() => this.windowed && this.boxes[0]?.clientHeight !== this.height && this.onLayout());
    this.observer = new ResizeObserver(fit); // the height of the window decides how many rows are visible
    this.node = h("label.sl-choice", { hidden: true }, "Long text ", this.select);
  }

  /** Makes the box around a lane's canvas. The canvas stays in view; a second child makes the box scroll. */
  around(canvas) {
    const box = h("div.sl-window", canvas, h("div"));
    const byHand = () => this.mode === "follow" && this.#choose("hand");
    box.addEventListener("scroll", () => this.#scrolled(box), { passive: true });
    box.addEventListener("wheel", byHand, { passive: true });
    box.addEventListener("touchmove", byHand, { passive: true });
    box.addEventListener("pointerdown", ({ target }) => target === box && byHand()); // a press on the scrollbar
    return box;
  }

  load(n, boxes) {
    Object.assign(this, { boxes, long: n > readable(), step: null });
    if (!this.chosen) this.mode = this.select.value = isNarrow() ? "whole" : "follow";
    this.node.hidden = !this.long;
    this.observer.disconnect();
    if (boxes.length) this.observer.observe(boxes[0]);
    for (const box of boxes) box.classList.toggle("sl-window-long", this.long && !this.whole);
  }

  get whole() {
    return this.long && this.mode === "whole";
  }
  get windowed() {
    return this.long && !this.whole;
  }

  /**
   * Sets the height of a box's content. Returns the height of a canvas that fills the visible part. tall: of all
   * cells.
   */
  room(box, tall) {
    const [canvas, rest] = box.children;
    canvas.style.height = "0px";
    rest.style.height = `${tall}px`;
    // The last pixel may be visible in part.
    const height = this.windowed ? Math.min(tall, box.clientHeight + 1) : tall;
    rest.style.height = `${tall - height}px`;
    return height;
  }

  measure() {
    this.height = this.boxes[0]?.clientHeight ?? 0;
    this.step = null;
  }

  /** [first, end] of the cells in view. */
  seen({ n, box: { columns, h: row } }) {
    if (!this.windowed) return [0, n];
    const from = Math.max(0, Math.floor(this.top / row) - 1) * columns;
    return [from, Math.min(n, Math.ceil((this.top + this.height) / row + 1) * columns)];
  }

  /**
   * Scrolls to the tokens of a step if none of them is in view. Scrolls once per step, so that visitors can scroll,
   * too.
   */
  follow(step, cells, grid) {
    if (!this.windowed || this.mode !== "follow" || this.step === step) return;
    this.step = step;
    if (step < 0) return this.#scrollTo(0);
    if (cells.length && !cells.some((cell) => this.#inside(cell, grid))) this.reveal(cells[0], grid);
  }

  reveal(cell, grid) {
    if (!this.windowed || this.#inside(cell, grid)) return;
    const { columns, h: row } = grid.box;
    this.#scrollTo(Math.floor(cell / columns) * row - this.height / 2);
  }

  #inside(cell, { box: { columns, h: row } }) {
    const at = Math.floor(cell / columns) * row;
    return at >= this.top && at + row <= this.top + this.height;
  }

  #scrollTo(top) {
    const [box] = this.boxes;
    if (!box) return;
    box.scrollTop = top;
    this.top = box.scrollTop;
    for (const other of this.boxes.slice(1)) other.scrollTop = this.top;
  }

  #scrolled(box) {
    if (!this.windowed || Math.abs(box.scrollTop - this.top) < 1) return;
    this.top = box.scrollTop;
    for (const other of this.boxes) if (other !== box) other.scrollTop = this.top;
    this.onScroll();
  }

  #choose(mode) {
    const before = this.whole;
    this.chosen = true; // whether the visitor has chosen the mode
    this.mode = this.select.value = mode;
    for (const box of this.boxes) box.classList.toggle("sl-window-long", this.windowed);
    this.step = null;
    if (this.whole !== before) this.onLayout();
  }
}
