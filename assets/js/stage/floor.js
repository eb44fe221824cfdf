// The floor: the lanes beside each other, one side a lane, and how much room their grids have.

import { h, reducedMotion } from "../dom.js";
import { besideParents } from "../run/branching.js";
import { hides, page } from "../run/state.js";
import { VALUES } from "../trace/values.js";
import { Cells } from "./cells.js";
import { LongText, readable } from "./longtext.js";
import { Side } from "./side.js";

const GAP = 8; // pixels between the parts of the first screen

export class Floor {
  sides = [];
  colours = null;

  /** parts: see partsOf. sight: see Sight. refer(lane) makes it the reference; spoke(): a grid has lost the focus; onLayout():
   * cells get another size; around(): how tall is what stands beneath the grids on the first screen, in pixels. */
  constructor({ parts, sight, refer, spoke, onLayout, onScroll, around }) {
    Object.assign(this, { sight, refer, spoke, around });
    this.cells = new Cells(parts, this);
    this.long = new LongText({ onLayout, onScroll });
    this.grids = h("section.sl-grids", { "aria-label": "Token grids" });
    this.partings = h("div.sl-partings"); // stand beneath the verdict; beside touches a text stands beneath its grid
    this.refusal = h("div.sl-instead", { role: "alert" });
    this.node = h("div.sl-floor", this.refusal, this.grids);
    this.texts = h("section.sl-texts", { "aria-label": "Texts" });
  }

  /** Lays out the lanes of a trace. */
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

  /** The side of a lane, undefined where that is not on show. */
  sideOf(lane) {
    return this.sides.find((side) => side.lane === lane);
  }

  resize(trace) {
    const tall = this.#tallest();
    for (const side of this.sides)
      side.resize(trace.n, this.colours, { whole: this.long.whole, tall, readable: readable() });
    this.long.measure();
  }

  /** How tall a grid may be so that all of them are in the first screen, in CSS pixels. */
  #tallest() {
    const shown = this.sides.filter(({ node }) => node.offsetHeight); // a lesson hides lanes
    const rows = new Set(shown.map(({ node }) => node.offsetTop)).size;
    return this.#room() / rows - Math.max(...shown.map((side) => side.around)) - GAP;
  }

  /** How much of the first screen all grids may take; beneath a lesson's card at least half of one. */
  #room() {
    const learns = page.now.lesson !== null;
    if (page.now.presents) return learns ? this.grids.clientHeight : Infinity;
    const { top } = this.grids.getBoundingClientRect();
    const touches = this.node.querySelector(".sl-touched-box")?.offsetHeight ?? 0;
    const left = innerHeight - (top + scrollY) - this.around() - touches - 3 * GAP;
    return learns ? Math.max(left, innerHeight / 2) : left;
  }

  /** All lanes at a step of the cursor; while it moves, what is in sight. */
  draw(trace, step, moving) {
    const { sight } = this;
    const { lane: last } = this.sides.at(-1);
    const there = this.sides.filter(({ grid }) => grid.box); // a lesson hides what it does not speak of
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

  /** Ties the sentence that stands to its cell, {lane, cell}, which pulses; null where it speaks of none. */
  tie(spoken) {
    for (const side of this.sides) side.tieTo(spoken?.lane === side.lane ? spoken.cell : -1);
  }

  /** The grids that are in sight, and nothing else. */
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
