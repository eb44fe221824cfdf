// The drawer, which shows one position in every lane. It opens beside the grids, on a narrow screen as a sheet above
// the player.

import "../loaded_first.js";
import { count, h, isNarrow, setText } from "../dom.js";
import { page } from "../run/state.js";
import { CellCurve } from "./cellcurve.js";
import { Epsilon } from "./epsilon.js";
import { Inspector } from "./inspector.js";

const EDGE = 8; // pixels to the edge of the window
const LEAST = 360; // pixels; the drawer's maximum height is never below this

/** The drawer. */
export class Drawer {
  /**
   * Adds the drawer to a stage.
   * @param {Stage} stage
   * @param {{fetchTop, fetchAttended, touching}} options fetchTop and fetchAttended: see Inspector; touching: null, or
   *   an object whose function `race` starts a lane (see Epsilon's constructor)
   */
  constructor(stage, { fetchTop, fetchAttended, touching }) {
    Object.assign(this, { root: stage.root, floor: stage.floor, cell: -1, child: null });
    this.player = page.now.player.node;
    this.resize = () => stage.resize();
    const begins = (start) => start && ((...asked) => this.#begin(() => start(...asked)));
    this.curve = new CellCurve();
    const headOf = (lane) => this.floor.sideOf(lane).node.querySelector("h2");
    this.epsilon = new Epsilon({ headOf, curve: this.curve, race: begins(touching?.race) ?? null });
    const pin = (cell) => this.floor.cells.pin(cell);
    this.inspector = new Inspector({ pin, fetchTop, fetchAttended });
    this.progress = h("p.sl-drawer-progress", { role: "status", tabindex: -1 });
    const { title, pinButton, note, pinList, body } = this.inspector;
    const close = h("button.sl-small", { onclick: () => this.close() }, "Close");
    const parts = [this.curve.node, this.epsilon.node, body];
    const head = h("header.sl-drawer-head", title, pinButton, close, this.progress, note, pinList);
    this.node = h("aside.sl-drawer", { "aria-label": "Position", hidden: true }, head, parts);
    this.#listen();
    this.floor.node.append(this.node);
    this.#follow();
  }

  #follow() {
    page.follow(["laid"], ({ trace }) => trace && this.load(trace));
    page.follow(["laid", "pins", "ended"], ({ trace }) => trace && this.inspector.drawPins());
    page.follow(["drawn"], ({ drawn }) => this.draw(drawn.step));
    page.follow(["records"], () => this.trace && this.#grew());
    page.follow(["ended"], ({ ended }) => ended && this.#ended(ended));
  }

  #listen() {
    const inside = ".sl-drawer, .sl-timeline, canvas.sl-grid";
    const outside = ({ target }) => isNarrow() && !target.closest?.(inside) && this.close();
    const onKey = ({ key, target }) => {
      if (key === "Escape" && this.isShown && !target.closest?.("dialog")) this.close();
    };
    // Captured, so that this closes the drawer before the pressed node's handler may open it again.
    document.addEventListener("click", outside, true);
    document.addEventListener("keydown", onKey);
  }

  load(trace) {
    this.trace = trace;
    if (!this.child) setText(this.progress, "");
    if (this.cell >= trace.n) this.close();
    this.inspector.load(trace);
    this.curve.load(trace);
    this.epsilon.load(trace);
    if (this.isOpen) this.#stand();
  }

  get isOpen() {
    return !this.node.hidden;
  }

  /** Whether the drawer is visible. Presenter mode and embedded pages hide it. */
  get isShown() {
    return this.node.checkVisibility();
  }

  /** Opens the drawer at a position of a lane's side. When it closes, the focus returns to the lane's grid. */
  open(cell, side) {
    const moves = !this.isOpen || this.from !== side.lane;
    Object.assign(this, { cell, from: side.lane });
    this.turnTo(side.lane);
    this.inspector.turnTo(cell);
    if (moves) {
      this.node.hidden = false;
      this.#stand();
      this.resize();
    }
    page.set({ inspected: cell });
    if (isNarrow()) this.#lift(side.place(cell));
  }

  /**
   * Puts the drawer beside its lane. The drawer may grow to the free space between its top and the player, and always
   * to LEAST.
   */
  #stand() {
    standBeside(this.floor, this.from);
    const top = Math.max(EDGE, this.node.getBoundingClientRect().top);
    const room = Math.max(LEAST, innerHeight - top - this.player.offsetHeight - 2 * EDGE);
    this.node.style.setProperty("--sl-drawer-room", `${room}px`);
    this.root.style.setProperty("--sl-player", `${this.player.offsetHeight + 10}px`);
    this.root.style.setProperty("--sl-dock", `${this.player.parentElement.offsetHeight + 10}px`);
  }

  /**
   * Puts the sheet above the player, or at the window's upper edge if the sheet would cover its cell there. The sheet
   * gives way and the page does not scroll, so the cell stays under the finger.
   * at: {top, bottom} of the cell in the window.
   */
  #lift(at) {
    const { node, player } = this;
    node.dataset.edge = at.bottom > innerHeight - player.offsetHeight - node.offsetHeight - 2 * EDGE ? "top" : "bottom";
  }

  close() {
    if (!this.isOpen) return;
    const focused = this.node.contains(document.activeElement);
    this.node.hidden = true;
    const { lanes, reference } = this.trace;
    page.set({ inspected: -1 });
    // The lane from which the drawer was opened may have been replaced.
    const side = this.floor.sideOf(lanes.includes(this.from) ? this.from : reference);
    if (focused) side.canvas.focus({ preventScroll: true });
    this.resize();
  }

  turnTo(lane) {
    this.epsilon.turnTo(lane);
  }

  draw(step) {
    const { trace, epsilon, cell } = this;
    if (!this.isOpen) return;
    if (epsilon.lane) epsilon.moveTo(trace.race.reached(epsilon.lane, step));
    this.curve.draw(cell, step);
    this.inspector.draw(step);
  }

  /** Starts a lane, and shows its progress. The focus moves to the progress, since the pressed button disappears. */
  #begin(start) {
    this.child = true; // a lane is being started: status messages go to the drawer from now on (see tells)
    const why = start();
    this.child = why ? null : this.trace.lanes.at(-1);
    if (!why) this.progress.focus({ preventScroll: true });
    return why;
  }

  #ended(trace) {
    if (trace === this.trace) this.#finished();
    else this.forget(trace);
  }

  /** Called when a trace that is not on show has ended: removes the progress of its lane. */
  forget({ lanes }) {
    if (!lanes.includes(this.child)) return;
    this.child = null;
    setText(this.progress, "");
  }

  /**
   * Shows a status message of the page here while the drawer is visible and waits for its new lane. Returns whether the
   * drawer showed the message.
   */
  tells(text) {
    if (!this.child || !this.isShown) return false;
    setText(this.progress, text);
    if (this.child !== true && !this.trace.lanes.includes(this.child)) this.child = null; // the lane was given up
    return true;
  }

  #grew() {
    const { child, epsilon } = this;
    if (epsilon.lane) epsilon.load(this.trace); // ends the estimate: it needs all records, and the run grows again
    if (!child?.count) return;
    setText(this.progress, `“${child.name}”: step ${child.count} of ${child.most}.`);
  }

  #finished() {
    const { child, trace } = this;
    this.child = null;
    this.curve.load(trace);
    this.epsilon.load(trace);
    if (!child) return;
    const parent = trace.lane(child.decoder.parent);
    const where = parent ? `next to “${parent.name}”` : "next to the others";
    setText(this.progress, `“${child.name}” is finished after ${count(child.count, "step")}, shown ${where}.`);
  }
}

/**
 * Leaves a column free for the drawer at the right of a lane, in every row. For a lane of the second row the drawer
 * begins at that row.
 */
function standBeside({ sides, node: floor }, lane) {
  const columns = sides.length < 4 ? sides.length : 2; // the same as in grids.css
  const at = sides.findIndex((side) => side.lane === lane);
  const hole = at < 0 ? columns : (at % columns) + 1;
  const tracks = Array.from({ length: columns + 1 }, (_, i) => (i === hole ? "var(--sl-drawer)" : "minmax(0, 1fr)"));
  const set = (node, name, value) => node.style.setProperty(`--sl-${name}`, value);
  sides.forEach(({ node }, i) => {
    set(node, "column", (i % columns) + 1 + (i % columns >= hole));
  });
  set(floor, "tracks", tracks.join(" "));
  set(floor, "hole", hole + 1);
  set(floor, "lower", "0px");
  if (at >= columns) set(floor, "lower", `${sides[at].node.offsetTop - sides[0].node.offsetTop}px`);
}
