// The cells of grids under the pointer and the keyboard: the cell that is looked at, pinned cells, and the cell in the
// drawer.

import { h, setText, zoomOf } from "../dom.js";
import { hides, page, redraw } from "../run/state.js";
import { writtenAt } from "../trace/chapters.js";
import { forkOf } from "../trace/prose.js";
import { cellText } from "./spoken.js";
import { PIN_COLOURS } from "./theme.js";

const FULL = `At most ${PIN_COLOURS} positions can be pinned at once; unpin one first.`;

/** The cells of all grids. */
export class Cells {
  led = null; // the side in which the keyboard has moved to a cell
  pointed = null; // {side, cell} under the pointer

  /** parts: see partsOf. floor: see Floor. */
  constructor(parts, floor) {
    Object.assign(this, { parts, floor });
    this.tip = h("div.sl-tip", { hidden: true, "aria-hidden": "true" });
    this.spoken = h("p.sl-hidden.sl-spoken", { "aria-live": "assertive" });
  }

  open(cell, { lane }) {
    return this.parts.drawer.use((drawer) => {
      const side = this.floor.sideOf(lane); // undefined if another trace is on show now
      const led = this.led?.lane === lane; // the keyboard may have moved on while the part was loaded
      if (side && !hides("inspector")) drawer.open(led ? page.now.hover : cell, side);
    });
  }

  pin(cell) {
    const pins = new Map(page.now.pins);
    if (!pins.delete(cell)) {
      if (page.now.lesson?.refuses(cell)) return;
      const taken = new Set(pins.values());
      const free = Array.from({ length: PIN_COLOURS }, (_, i) => i).find((i) => !taken.has(i));
      if (free === undefined) return this.parts.drawer.use(({ inspector }) => inspector.say(FULL));
      pins.set(cell, free);
    }
    page.set({ pins, looked: {} });
  }

  /**
   * Called for a press or Enter: opens the menu of a cell. In a lesson it pins the cell, as an answer to a question.
   */
  press(side, cell) {
    page.set({ hover: cell });
    if (page.now.lesson) return this.compare(side, cell);
    this.tip.hidden = true;
    return this.parts.touching.use((touching) => {
      const there = this.floor.sideOf(side.lane); // another trace may be on show by now
      if (there) touching.open(there, cell);
    });
  }

  /** Pins a cell and shows it in the drawer. A pinned cell is shown in the drawer, or unpinned if it is shown there. */
  compare(side, cell) {
    const hidden = hides("inspector");
    const shows = page.now.pins.has(cell) && !hidden && page.now.inspected !== cell;
    page.set({ hover: cell });
    if (!hidden) this.open(cell, side);
    if (shows) redraw();
    else this.pin(cell);
  }

  point(side, cell, event) {
    this.tip.hidden = cell < 0;
    if (cell < 0) return this.#leaveGrid();
    const other = cell !== page.now.hover || side !== this.pointed?.side;
    this.pointed = { side, cell };
    this.writeTip(page.now.step);
    const root = this.tip.parentElement;
    const box = root.getBoundingClientRect();
    const zoom = zoomOf(root);
    const x = Math.min((event.clientX - box.left) / zoom + 14, box.width / zoom - 260);
    this.tip.style.transform = `translate(${x}px, ${(event.clientY - box.top) / zoom + 18}px)`;
    if (!other) return;
    this.led = null;
    page.set({ hover: cell });
  }

  /** Called when the pointer has left the grids. The cell in the drawer stays marked. */
  #leaveGrid() {
    if (page.now.inspected < 0 || this.led) return;
    page.set({ hover: page.now.inspected });
  }

  /** Called when the grids are replaced: hides the tip. */
  leave() {
    this.tip.hidden = true;
  }

  writeTip(step) {
    if (this.tip.hidden) return;
    const { side, cell } = this.pointed;
    setText(this.tip, cellText(page.now.trace, side.lane, cell, step, page.now.guesses));
  }

  focusCell(side, cell) {
    this.led = side;
    this.floor.long.reveal(cell, side.grid);
    if (page.now.inspected >= 0) this.parts.drawer.use((drawer) => drawer.open(cell, side));
    page.set({ hover: cell });
  }

  /** Reads aloud the cell to which the keyboard has moved, and reads it again if a step changes it. */
  speak(step) {
    const { led } = this;
    const { hover, trace, guesses } = page.now;
    if (hover < 0 || !led || led.canvas !== document.activeElement) return;
    setText(this.spoken, cellText(trace, led.lane, hover, step, guesses));
  }

  /** Moves the cursor to the step at which both words of a fork are written, and shows the position in the drawer. */
  toFork(side, step) {
    const { trace, player } = page.now;
    const { position } = forkOf(trace, side.lane, step);
    page.set({ hover: position });
    player.seek(writtenAt(trace, side.lane, position));
    if (!hides("inspector")) this.open(position, side);
  }
}
