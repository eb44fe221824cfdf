// The floor arranges the lanes side by side, one Side per lane, and decides the size of their grids.

import { h, reducedMotion } from "../dom.js";
import { besideParents } from "../run/branching.js";
import { hides, page } from "../run/state.js";
import { VALUES } from "../trace/values.js";
import { Cells } from "./cells.js";
import { LongText, readable } from "./longtext.js";
import { Side } from "./side.js";

const GAP = 8; // pixels between the parts of the first screen

/** The floor of a stage. */
export class Floor {
  sides = [];
  colours = null;

  /**
   * @param {object} options
   * @param {object} options.parts see partsOf
   * @param {Sight} options.sight
   * @param {function(Lane)} options.refer makes a lane the reference
   * @param {function()} options.spoke called when a grid has lost the focus
   * @param {function()} options.onLayout called when cells get another size
   * @param {function()} options.onScroll called when other cells come into view
   * @param {function(): number} options.around returns the height in pixels of everything beneath the grids on the
   *   first screen
   */
  constructor({ parts, sight, refer, spoke, onLayout, onScroll, around }) {
    Object.assign(this, { sight, refer, spoke, around });
    this.cells = new Cells(parts, this);
    this.long = new LongText({ onLayout, onScroll });
    this.grids = h("section.sl-grids", { "aria-label": "Token grids" });
    this.partings = h("div.sl-partings"); // beneath the verdict; for a touched trace the texts are beneath the grids
    this.refusal = h("div.sl-instead", { role: "alert" });
    this.node = h("div.sl-floor", this.refusal, this.grids);
    this.texts = h("section.sl-texts", { "aria-label": "Texts" });
  }

  /** Makes the sides of a trace's lanes. */
  load(trace) {
    this.cells.leave();
    this.sides = besideParents(trace.lanes).map((lane) => new Side(lane, trace, this));
    this.grids.dataset.lanes = this.texts.dataset.lanes = trace.lanes.length;
    this.grids.replaceChildren(...this.sides.map(({ node }) => node));
    this.texts.replaceChildren(...this.sides.map(({ more }) => more));
    const parted = page.now.touches ? null : this.sides.map(({ parting }) => parting);
    this.partings.replaceChildren(...(trace.lanes.length === 2 && parted ? parted : []));
    if (!parted) for (const { foot, parting } of this.sides) foot.append(parting);
    this.sight.watch(this.sides.flatMap(({ box, details }) => [box, details]));
    this.long.load(
      trace.n,
      this.sides.map(({ box }) => box),
    );
  }

  /** The side of a lane, undefined if the lane is not on show. */
  sideOf(lane) {
    return this.sides.find((side) => side.lane === lane);
  }

  resize(trace) {
    const tall = this.#tallest();
    for (const side of this.sides)
      side.resize(trace.n, this.colours, { whole: this.long.whole, tall, readable: readable() });
    this.long.measure();
  }

  /** The greatest height of a grid with which all grids fit the first screen, in CSS pixels. */
  #tallest() {
    const shown = this.sides.filter(({ node }) => node.offsetHeight); // a lesson hides lanes
    const rows = new Set(shown.map(({ node }) => node.offsetTop)).size;
    return this.#room() / rows - Math.max(...shown.map((side) => side.around)) - GAP;
  }

  /** The height for all grids on the first screen. Beneath a lesson's card it is at least half a screen. */
  #room() {
    const learns = page.now.lesson !== null;
    if (page.now.presents) return learns ? this.grids.clientHeight : Infinity;
    const { top } = this.grids.getBoundingClientRect();
    const touches = this.node.querySelector(".sl-touched-box")?.offsetHeight ?? 0;
    const left = innerHeight - (top + scrollY) - this.around() - touches - 3 * GAP;
    return learns ? Math.max(left, innerHeight / 2) : left;
  }

  /** Draws all lanes at a step of the cursor. While the cursor moves, only lanes in view are drawn. */
  draw(trace, step, moving) {
    const { sight } = this;
    const { lane: last } = this.sides.at(-1);
    const there = this.sides.filter(({ grid }) => grid.box); // a lesson may hide lanes
    const written = last.at(trace.race.reached(last, step))?.unmasked ?? [];
    if (there.length) this.long.follow(step, written, there[0].grid);
    this.#drawGrids(
      trace,
      there.filter(({ box }) => sight.has(box)),
      step,
    );
    for (const side of this.sides) {
      side.draw(trace, step, sight.reads(side.details));
      if (!moving || sight.tells) side.name(trace, step);
    }
    this.cells.writeTip(step);
    if (!moving) this.cells.speak(step);
  }

  /** Lets the cell pulse that the present sentence mentions: {lane, cell}, null for none. */
  tie(spoken) {
    for (const side of this.sides) side.tieTo(spoken?.lane === side.lane ? spoken.cell : -1);
  }

  /** Draws only the grids in view. */
  redrawGrids() {
    const there = this.sides.filter(({ grid, box }) => grid.box && this.sight.has(box));
    if (page.now.trace) this.#drawGrids(page.now.trace, there, page.now.step);
  }

  #drawGrids(trace, sides, step) {
    if (!sides.length) return;
    const { hover, pins, estimate, wave, colour, player, lesson } = page.now;
    const lit = !((player.playing || player.follow) && reducedMotion());
    const base = this.sideOf(trace.reference);
    const parts = lesson !== null && !hides("blocks");
    for (const side of new Set([base, ...sides])) side.label(trace, step);
    for (const side of sides) {
      const { lane } = side;
      const t = trace.race.reached(lane, step);
      side.drawGrid(trace, {
        step: t,
        states: estimate?.states(lane, t),
        values: VALUES[colour]?.of(trace, lane, t) ?? null,
        block: parts ? (lane.decoder.settings.block_length ?? 0) : 0,
        seen: this.long.seen(side.grid),
        top: this.long.windowed ? this.long.top : 0,
        other: side === base ? null : base.labels.tokens,
        fresh: lit,
        hover,
        pins,
        outlined: wave?.levels(lane, t),
      });
    }
  }
}
