// The stage: puts the parts together and moves them all to one step. It is the same in the page and in an exported replay.

import { Analysis } from "./analysis.js";
import { Curves, loadPlotly } from "./curves.js";
import { choiceText, judgements, sentence } from "./described.js";
import { count, h, percent, perFrame, reducedMotion, sameText, setText, throttle } from "./dom.js";
import { Gauges } from "./gauges.js";
import { Grid } from "./grid.js";
import { Handout } from "./handout.js";
import { Inspector } from "./inspector.js";
import { gridKeys, timelineKeys } from "./keys.js";
import { narrate } from "./narrator.js";
import { prose, writeProse } from "./prose.js";
import { Runs } from "./runs.js";
import { Share } from "./share.js";
import { tabs } from "./tabs.js";
import { onThemeChange, PIN_COLOURS, palette } from "./theme.js";
import { Timeline } from "./timeline.js";
import { Trace } from "./trace.js";
import { WhatIf } from "./whatif.js";

const ABOUT = [
  "A masked diffusion language model writes by unmasking: each step runs the whole sequence through the network and commits a few of the masked positions. Long before the end most positions have stopped changing, and are computed again all the same.",
  "SureLock locks a position once its posterior has stopped moving: the step-wise KL divergence is at most ε, and the position is among the m % most certain. A locked position is no longer computed; its cached keys and values stay for the others to attend to.",
  "A decoder is two choices: which rows a step computes, and which masked positions it writes. All contestants run the same prompt and seed, one step each in turn, each timed on its own; everything is shown beside the reference, which any of them can be. FLOPs are algorithmic: attention, projections and feed-forward of the computed rows. Time is what this machine measured, observation excluded.",
];

const LEGEND = [
  ["masked", "masked"],
  ["active", "active: computed in this step"],
  ["resting", "resting: not computed in this step"],
  ["locked", "locked: no longer computed"],
  ["prompt", "prompt"],
  ["differs", "differs from the reference"],
];

const paper = () =>
  h(
    "a",
    { href: "https://daioba.github.io/surelock", target: "_blank", rel: "noopener" },
    "Stopping Computation for Converged Tokens in Masked Diffusion-LM Decoding",
  );

/** The model and what all contestants share, in a line. */
function describe({ header: { model, contestants }, steps }) {
  const lengths = contestants.map(({ settings }) => settings.gen_length).filter(Boolean);
  const length = lengths.length ? `${count(lengths[0], "token")} in ${count(steps, "step")}` : null;
  return [model?.name, length].filter(Boolean).join(", ");
}

export class Stage {
  /** root: an empty element. options: {plotly: url or null, source: see Share, fetchTop(trace, lane, cell, step), stepLive, onLive: see Timeline, whatIf: see WhatIf or null, onUse: see Runs, importing} */
  constructor(
    root,
    {
      plotly = null,
      source = {},
      fetchTop = null,
      stepLive = () => false,
      onLive = () => {},
      whatIf = null,
      onUse = null,
      importing = true,
      about = ABOUT,
    } = {},
  ) {
    Object.assign(this, { root, pins: new Map(), hover: -1, trace: null, sides: [] });
    this.gauges = new Gauges();
    this.timeline = new Timeline({
      onMove: (step) => this.#draw(step),
      onPlaying: () => this.#announce(),
      onStepPastEnd: stepLive,
      onLive,
    });
    this.curves = new Curves();
    this.whatIf = whatIf && new WhatIf(whatIf);
    this.inspector = new Inspector({
      onPin: (cell) => this.pin(cell),
      fetchTop: fetchTop && ((lane, cell, step) => this.#fetchTop(fetchTop, lane, cell, step)),
      extra: this.whatIf?.node,
    });
    this.analysis = new Analysis({ onSeek: (step) => this.timeline.seek(step) });
    this.runs = new Runs({
      onShow: (trace) => this.#reveal(trace),
      onCompare: (sides) => this.#reveal(Trace.of(sides), "Compared:"),
      onUse,
    });
    this.share = new Share({
      source,
      onImport: importing
        ? (trace) => {
            this.runs.add(trace, "imported");
            this.show(trace, { label: "Imported run:" });
          }
        : null,
    });
    this.handout = new Handout({ root, trace: () => this.trace, link: source.link });
    this.status = h("p", { class: "sl-status", role: "status" });
    this.summary = h("p", { class: "sl-hidden", "aria-live": "polite" });
    this.label = h("p", { class: "sl-run-label" });
    this.narrator = h("p", { class: "sl-narrator" });
    this.tip = h("div", { class: "sl-tip", hidden: true, "aria-hidden": "true" });
    this.grids = h("section", { class: "sl-grids", "aria-label": "Token grids" });
    const told = h(
      "div",
      { class: "sl-about" },
      about.map((text) => h("p", {}, text)),
      h(
        "p",
        {},
        "The method is that of ",
        paper(),
        " by Daisuke Oba, Danushka Bollegala, Masahiro Kaneko and Naoaki Okazaki (ICLR 2026).",
      ),
    );
    const panels = [
      ["Analysis", this.analysis.node, () => this.analysis.redraw()],
      ["Runs", this.runs.node, () => this.runs.draw()],
      ["Export", this.share.node],
      ["About", told],
    ];
    this.tabs = tabs(panels, "More about this run");
    root.append(
      this.narrator,
      this.gauges.node,
      h("div", { class: "sl-bar-row" }, this.#legend(), this.label),
      this.status,
      this.grids,
      this.timeline.node,
      h("div", { class: "sl-lower" }, this.curves.node, this.inspector.node),
      this.tabs.node,
      this.summary,
      this.tip,
    );
    this.resize = perFrame(() => this.#resize());
    this.announceLater = throttle(() => this.#announce(), 4000);
    this.observer = new ResizeObserver(this.resize);
    this.observer.observe(root);
    this.stops = [
      onThemeChange(() => this.#theme()),
      timelineKeys(this.timeline, root),
      () => this.observer.disconnect(),
      () => this.handout.stop(),
    ];
    if (plotly)
      requestIdleCallback(() => loadPlotly(plotly).then((found) => this.curves.use(found)), { timeout: 1500 });
    else this.curves.use(window.Plotly ?? null);
    this.#theme();
  }

  destroy() {
    this.timeline.pause();
    for (const stop of this.stops) stop();
  }

  /** Shows a trace; `play` starts it, `live` says that records are still coming. */
  show(trace, { play = false, live = false, label = "", step } = {}) {
    this.trace = trace;
    trace.live = live;
    this.pins.clear();
    this.hover = -1;
    this.caption = label;
    this.lanesChanged();
    this.timeline.load(trace, { live, step: step ?? (play || live ? -1 : trace.count - 1) });
    if (play) this.timeline.play();
  }

  /** The trace on show has other lanes, or another reference, than before. */
  lanesChanged() {
    const { trace } = this;
    setText(this.label, [this.caption, describe(trace)].filter(Boolean).join(" "));
    this.sides = trace.lanes.map((lane, i) => this.#side(lane, i));
    this.grids.dataset.lanes = trace.lanes.length;
    this.grids.replaceChildren(...this.sides.map(({ node }) => node));
    this.gauges.load(trace);
    this.inspector.load(trace);
    this.inspector.drawPins(this.pins);
    this.whatIf?.load(trace);
    this.share.load(trace);
    this.curves.pins = this.pins;
    this.#resize();
    this.curves.load(trace);
    this.analysis.load(trace, this.colours);
    this.timeline.drawTicks();
    this.redraw();
  }

  /** Everything is shown beside this lane from now on. */
  refer(lane) {
    this.trace.reference = lane;
    this.lanesChanged();
    this.runs.draw();
    this.#announce();
  }

  /** Records were appended to the trace on show. */
  grew() {
    this.timeline.grew();
    this.curves.redraw();
    this.analysis.redraw();
  }

  finish() {
    this.trace.live = false;
    this.timeline.finish();
    this.curves.redraw();
    this.analysis.redraw();
    this.runs.draw();
    this.#announce();
  }

  say(text, kind = "note") {
    setText(this.status, text);
    this.status.dataset.kind = kind;
  }

  pin(cell) {
    if (this.pins.has(cell)) this.pins.delete(cell);
    else {
      const taken = new Set(this.pins.values());
      const free = Array.from({ length: PIN_COLOURS }, (_, i) => i).find((i) => !taken.has(i));
      if (free === undefined)
        return this.say(`At most ${PIN_COLOURS} positions can be pinned at once; unpin one first.`);
      this.pins.set(cell, free);
    }
    this.inspector.drawPins(this.pins);
    this.curves.redraw();
    this.redraw();
  }

  redraw() {
    this.#draw(this.timeline.step);
  }

  #reveal(trace, label = "") {
    this.show(trace, { label });
    this.root.scrollIntoView({ block: "start" });
  }

  async #fetchTop(fetchTop, lane, cell, step) {
    const found = await fetchTop(this.trace, lane, cell, step);
    this.whatIf?.offer(
      lane,
      cell,
      step,
      (found ?? []).map(([id, , p]) => [id, p]),
    );
    return found;
  }

  #side(lane, index) {
    const canvas = h("canvas", {
      class: "sl-grid",
      tabindex: 0,
      role: "application",
      "aria-roledescription": "token grid",
      "aria-label": lane.name,
      "data-lane": lane.id,
    });
    const { reference } = this.trace;
    const text = h("p", { class: "sl-text", dir: "auto" });
    const choose = h(
      "button",
      {
        type: "button",
        class: "sl-refer",
        "aria-pressed": String(lane === reference),
        title: "Show everything beside this one",
        onclick: () => this.refer(lane),
      },
      lane === reference ? "reference" : "make reference",
    );
    const told = h("p", { title: choiceText(lane.contestant) }, sentence(lane.contestant, reference.contestant));
    const reading = h("summary", {}, "The text");
    const side = { lane, canvas, text, reading, grid: new Grid(canvas), labels: { count: -2 } };
    side.node = h(
      "article",
      { class: `sl-side sl-lane-${index + 1}`, "data-reference": this.trace.lanes.length > 1 && lane === reference },
      h("header", {}, h("h2", {}, lane.name), this.trace.lanes.length > 1 ? choose : null, told),
      canvas,
      h("details", { class: "sl-reading", open: true }, reading, text),
    );
    const at = (event) => side.grid.box && side.grid.cellAt(event.offsetX, event.offsetY);
    canvas.addEventListener("pointermove", (event) => this.#point(side, at(event), event));
    canvas.addEventListener("pointerleave", () => {
      this.tip.hidden = true;
    });
    canvas.addEventListener("click", (event) => {
      const cell = at(event);
      if (cell >= 0 && this.trace) {
        this.hover = cell;
        this.pin(cell);
      }
    });
    canvas.addEventListener("focus", () => {
      if (this.hover < 0 && this.trace && canvas.matches(":focus-visible"))
        this.#focusCell(side, this.trace.promptLength);
    });
    side.node.addEventListener("toggle", () => this.redraw(), true);
    gridKeys(canvas, {
      cell: () => this.hover,
      count: () => this.trace?.n ?? 0,
      columns: () => side.grid.box.columns,
      move: (cell) => this.#focusCell(side, cell),
      pin: (cell) => this.pin(cell),
    });
    return side;
  }

  #point(side, cell, event) {
    if (!this.trace || cell < 0) {
      this.tip.hidden = true;
      return;
    }
    setText(this.tip, this.inspector.describe(side.lane, cell, this.timeline.step));
    const box = this.root.getBoundingClientRect();
    this.tip.hidden = false;
    this.tip.style.transform = `translate(${Math.min(event.clientX - box.left + 14, box.width - 260)}px, ${event.clientY - box.top + 18}px)`;
    if (cell !== this.hover || side !== this.pointed) {
      Object.assign(this, { hover: cell, pointed: side });
      this.whatIf?.turnTo(side.lane);
      this.redraw();
    }
  }

  #focusCell(side, cell) {
    this.hover = cell;
    this.whatIf?.turnTo(side.lane);
    setText(this.summary, this.inspector.describe(side.lane, cell, this.timeline.step));
    this.redraw();
  }

  #legend() {
    return h(
      "ul",
      { class: "sl-legend", "aria-label": "Legend" },
      LEGEND.map(([kind, text]) =>
        h("li", {}, h("span", { class: `sl-swatch sl-swatch-${kind}`, "aria-hidden": "true" }), text),
      ),
    );
  }

  #theme() {
    this.colours = palette(this.root);
    this.curves.theme(this.colours);
    this.analysis.colours = this.colours;
    this.analysis.redraw();
    this.timeline.drawTicks();
    this.#resize();
  }

  #resize() {
    if (!this.trace) return;
    for (const side of this.sides) {
      const width = side.canvas.clientWidth;
      if (width) side.grid.resize(this.trace.n, width, this.colours);
    }
    this.redraw();
  }

  /** Everything at one step. Cheap: a canvas a lane and a few text nodes. */
  #draw(step) {
    const { trace } = this;
    if (!trace || !this.sides.length || !this.sides.every(({ grid }) => grid.box)) return;
    const lit = !(reducedMotion() && (this.timeline.playing || this.timeline.follow));
    for (const side of this.sides) this.#label(side, step);
    const base = this.sides.find(({ lane }) => lane === trace.reference);
    for (const side of this.sides) {
      const { lane, grid, labels } = side;
      grid.draw({
        lane,
        step,
        tokens: labels.tokens,
        other: side === base ? null : base.labels.tokens,
        promptLength: trace.promptLength,
        labels: labels.list,
        fresh: lit,
        hover: this.hover,
        pins: this.pins,
      });
      setText(side.reading, ["The text", ...judgements(lane).map((said) => said.join(": "))].join(". "));
      if (side.node.querySelector("details").open) this.#write(side, step);
    }
    setText(this.narrator, narrate(trace, step));
    this.gauges.draw(trace, step);
    this.curves.moveTo(step);
    this.analysis.moveTo(step);
    this.inspector.draw(this.hover, step, this.pins);
    this.whatIf?.draw(this.hover, step);
    this.root.dataset.step = step;
    this.root.dataset.count = trace.count;
    if (!this.timeline.playing) this.announceLater();
  }

  /** What a side's cells say at a step, worked out once. */
  #label(side, step) {
    const t = side.lane.clamp(step);
    if (side.labels.count === t) return;
    const tokens = side.lane.tokens(t);
    const list = side.grid.box.w >= 22 ? this.trace.pieces.labels(tokens, this.trace.eosId) : [];
    side.labels = { count: t, list, tokens };
  }

  /** The text of a side, worked out once for what it and the reference have written. */
  #write(side, step) {
    const { lane } = side;
    const { reference } = this.trace;
    const written = [lane.clamp(step), lane.count, reference.id, reference.clamp(step)].join();
    if (side.written === written) return;
    side.written = written;
    writeProse(side.text, prose(this.trace, lane, step), (position) => this.#toFork(lane, position));
  }

  /** To the step in which the later of the two words at a fork is written; the inspector shows both distributions. */
  #toFork(lane, position) {
    const { reference, count: steps } = this.trace;
    const written = [lane, reference].map((each) => each.unmaskStep(position, steps - 1)).filter(Number.isFinite);
    this.hover = position;
    this.timeline.seek(Math.max(0, ...written));
    this.inspector.node.scrollIntoView({ block: "nearest" });
  }

  /** The screen reader's summary of what the grids show. */
  #announce() {
    const { trace } = this;
    const { step } = this.timeline;
    if (!trace?.reference.at(step)) return;
    const others = trace.lanes.length > 1 ? trace.lanes.filter((lane) => lane !== trace.reference) : trace.lanes;
    const told = others.map((lane) => {
      const now = trace.totals(lane, step);
      const { flopsShare, locked, damage, same } = now;
      const beside = lane === trace.reference ? "computing every position" : trace.reference.name;
      return (
        `${lane.name}: ${locked} of ${trace.n} positions locked, ${percent(flopsShare)} of the computation of ${beside} so far, ` +
        `${damage ? `${damage.changed} of ${damage.commits} choices changed, ` : ""}${sameText(same)}.`
      );
    });
    setText(this.summary, `Step ${step + 1} of ${trace.count}. ${told.join(" ")}`);
    for (const { canvas, lane } of this.sides) {
      const states = lane.row(step);
      const of = (...wanted) => states.reduce((sum, s) => sum + wanted.includes(s), 0);
      canvas.setAttribute(
        "aria-label",
        `${lane.name}: ${of(0, 4)} masked, ${of(1)} active, ${of(3)} resting, ${of(2)} locked. Arrow keys move over the cells, Enter pins one.`,
      );
    }
  }
}
