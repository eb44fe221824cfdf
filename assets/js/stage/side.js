// The view of one lane on the stage: its name, clock, grid, raster and text.

import { h, setText, zoomOf } from "../dom.js";
import { page } from "../run/state.js";
import { choiceText, sentence } from "../trace/described.js";
import { parting, prose, proseFromFork, textOf } from "../trace/prose.js";
import { Clock } from "./clock.js";
import { Grid } from "./grid.js";
import { gridKeys } from "./keys.js";
import { labelsOf } from "./labels.js";
import { layout } from "./layout.js";
import { laneKinds } from "./legend.js";
import { writeProse } from "./prose.js";
import { Raster } from "./raster.js";
import { gridName } from "./spoken.js";

const UNDER = 140; // characters of the text beneath a grid whose cells have no room for tokens

/** The side of a lane. */
export class Side {
  /** floor: the Floor that contains the side. */
  constructor(lane, trace, floor) {
    Object.assign(this, { lane, floor, labels: { count: -2 } });
    const attributes = { role: "application", "aria-roledescription": "token grid", "aria-label": lane.name };
    this.canvas = h("canvas.sl-grid", { tabindex: 0, "data-lane": lane.id, ...attributes });
    this.grid = new Grid(this.canvas);
    this.box = floor.long.around(this.canvas);
    this.tie = h("div.sl-tie", { "aria-hidden": "true", hidden: true });
    this.box.append(this.tie);
    this.clock = new Clock(lane);
    this.raster = new Raster(lane);
    this.text = h("p.sl-text", { dir: "auto", tabindex: 0 }); // focusable, so that keys can scroll it
    this.details = h("details.sl-reading", { open: true }, h("summary", "The text"), this.text);
    // The text of a grid whose cells have no room for tokens.
    this.under = h("p.sl-under", { dir: "auto", hidden: !floor.long.whole });
    this.parting = h("p.sl-parting", { dir: "auto" });
    this.foot = h("div.sl-foot", this.under, this.raster.node);
    const shown = page.now.touches?.original === lane ? `${lane.name}, as it was` : lane.name;
    const name = h("h2", { title: choiceText(lane.decoder) }, shown);
    const laneClass = `sl-lane-${trace.colourOf(lane) + 1}`;
    this.kinds = trace.lanes.length > 2 ? h("ul.sl-legend.sl-lane-key", { "aria-label": `Key of ${lane.name}` }) : null;
    const head = h("header", name, this.clock.node);
    this.node = h(`article.sl-side.${laneClass}`, head, this.kinds, this.box, this.foot);
    this.more = h(`article.sl-side-more.${laneClass}`, this.#head(trace), this.details);
    this.#listen();
  }

  /** Makes the head: a sentence about the lane, and the button that makes it the reference. */
  #head({ lanes, reference }) {
    const { lane, floor } = this;
    const isReference = lane === reference;
    const attributes = {
      "aria-current": isReference ? "true" : undefined,
      title: "Compare all lanes with this one",
      onclick: () => floor.refer(lane),
    };
    const choose = h("button.sl-refer", attributes, isReference ? "Reference" : "Make reference");
    const description = h("p", sentence(lane.decoder, reference.decoder));
    return h("header", h("h3", lane.name), lanes.length > 1 ? choose : null, description);
  }

  #listen() {
    const { canvas, floor } = this;
    const { cells } = floor;
    canvas.addEventListener("pointermove", (event) => {
      if (event.pointerType !== "touch") cells.point(this, this.#at(event), event);
    });
    canvas.addEventListener("pointerleave", () => cells.point(this, -1));
    canvas.addEventListener("click", (event) => {
      const cell = this.#at(event);
      if (cell >= 0) cells.press(this, cell);
    });
    canvas.addEventListener("blur", () => floor.spoke());
    canvas.addEventListener("focus", () => {
      if (page.now.hover < 0 && canvas.matches(":focus-visible")) cells.focusCell(this, page.now.trace.promptLength);
    });
    gridKeys(canvas, {
      cell: () => page.now.hover,
      count: () => page.now.trace.n,
      columns: () => this.grid.box.columns,
      move: (cell) => cells.focusCell(this, cell),
      open: (cell) => cells.press(this, cell),
    });
  }

  /** The cell under the pointer, -1 if there is none. */
  #at({ clientX, clientY }) {
    const { left, top } = this.canvas.getBoundingClientRect();
    const zoom = zoomOf(this.canvas); // browsers do not agree on offsetX in a magnified element
    return this.grid.box ? this.grid.cellAt((clientX - left) / zoom, (clientY - top) / zoom) : -1;
  }

  /** Marks the cell that the sentence mentions, -1 for none. */
  tieTo(cell) {
    const { tie, grid } = this;
    tie.hidden = cell < 0 || !grid.box;
    if (tie.hidden) return;
    const [x, y, width, height] = grid.rect(cell);
    const place = `${x}px ${y}px`;
    if (tie.dataset.at === `${cell} ${place}`) return;
    tie.dataset.at = `${cell} ${place}`;
    Object.assign(tie.style, { translate: place, width: `${width}px`, height: `${height}px` });
    tie.style.animation = "none"; // the animation starts again
    requestAnimationFrame(() => {
      tie.style.animation = "";
    });
  }

  place(cell) {
    const [, top, , height] = this.grid.rect(cell);
    const edge = this.canvas.getBoundingClientRect().top;
    const y = edge + top - this.grid.top;
    return { top: y, bottom: y + height };
  }

  /** The height of everything around the grid, in CSS pixels. */
  get around() {
    const { paddingTop, paddingBottom } = getComputedStyle(this.node);
    const [head] = this.node.children;
    const kinds = this.kinds?.offsetHeight ?? 0;
    return head.offsetHeight + kinds + this.foot.offsetHeight + parseFloat(paddingTop) + parseFloat(paddingBottom) + 10;
  }

  /** Fits the grid to its width. how: {whole, tall}, see `layout`. */
  resize(n, colours, how) {
    this.under.hidden = !how.whole;
    const width = this.canvas.clientWidth;
    if (width) {
      const { rows, h: row } = layout(n, width, how);
      this.grid.resize(n, width, colours, { ...how, most: this.floor.long.room(this.box, rows * row) });
    }
    this.labels.count = -2; // the labels have to be computed again
  }

  /** Computes the cells' labels at the cursor's step, once per step. */
  label(trace, step) {
    const t = trace.race.reached(this.lane, step);
    const { guesses } = page.now;
    if (this.labels.count === t && this.labels.guesses === guesses) return;
    const worded = this.grid.box?.text ? labelsOf(trace, this.lane, t, guesses) : null;
    this.labels = { count: t, guesses, ...(worded ?? { tokens: this.lane.tokens(t), list: [] }) };
  }

  /** Draws the grid. view: the fields of a GridView (see grid.js) that do not depend on the lane. */
  drawGrid(trace, view) {
    const { lane, labels } = this;
    const { list, tokens, faint } = labels;
    this.grid.draw({ lane, tokens, labels: list, faint, given: trace.given, ...view });
  }

  /** Draws everything but the grid at the cursor's step. reads: whether the text is updated, too. */
  draw(trace, step, reads) {
    if (reads) this.#write(trace, step);
    if (!this.under.hidden)
      setText(this.under, textOf(trace, this.lane, trace.race.reached(this.lane, step)).slice(-UNDER));
    this.clock.draw(trace, step);
    this.raster.moveTo(trace, step);
  }

  /** Draws the raster under the grid up to the cursor. */
  drawRun(trace, colours, step) {
    this.kinds?.replaceChildren(...laneKinds(this.lane));
    this.raster.draw(trace, colours, step);
  }

  /** Updates the text if the tokens of the lane or the reference have changed. */
  #write(trace, step) {
    const { lane } = this;
    const laneStep = trace.race.reached(lane, step);
    const referenceStep = trace.race.reached(trace.reference, step);
    const written = [laneStep, lane.count, trace.reference.id, referenceStep].join();
    if (this.written === written) return;
    this.written = written;
    writeProse(this.text, prose(trace, lane, step), () => this.floor.cells.toFork(this, step));
  }

  /** Shows the text around its fork from the reference, at the end of a race; for a touched trace at every step. */
  part(trace, over, step) {
    const whole = page.now.touches !== null;
    const end = over ? parting(trace, this.lane) : [];
    const parts = whole ? proseFromFork(trace, this.lane, step) : end;
    this.parting.classList.toggle("sl-parting-whole", whole);
    if (whole)
      this.parting.tabIndex = 0; // focusable, so that keys can scroll it
    else this.parting.removeAttribute("tabindex");
    const shown = parts.map(({ text }) => text).join("");
    if (this.parted === shown) return;
    this.parted = shown;
    writeProse(this.parting, parts, () => this.floor.cells.toFork(this, page.now.step));
  }

  /** Updates the accessible name of the grid, which counts the states of its cells. */
  name(trace, step) {
    const name = gridName(this.lane, trace.race.reached(this.lane, step));
    if (this.canvas.ariaLabel !== name) this.canvas.setAttribute("aria-label", name);
  }
}
