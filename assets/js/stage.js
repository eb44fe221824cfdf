// The stage: puts the parts together and moves them all to one step. It is the same in the page and in an exported replay.

import { Analysis } from "./analysis.js";
import { Curves, loadPlotly } from "./curves.js";
import { h, percent, perFrame, reducedMotion, setText, throttle } from "./dom.js";
import { Gauges } from "./gauges.js";
import { Grid } from "./grid.js";
import { Inspector } from "./inspector.js";
import { gridKeys, timelineKeys } from "./keys.js";
import { Runs } from "./runs.js";
import { Share } from "./share.js";
import { tabs } from "./tabs.js";
import { onThemeChange, PIN_COLOURS, palette } from "./theme.js";
import { Timeline } from "./timeline.js";
import { LANES, Trace } from "./trace.js";

const NAMES = ["Baseline", "SureLock"];
const SUBTITLES = ["computes every position in every step", "stops computing what has converged"];
const ABOUT = [
  "A masked diffusion language model writes by unmasking: each step runs the whole sequence through the network and commits a few of the masked positions. Long before the end most positions have stopped changing, and are computed again all the same.",
  "SureLock locks a position once its posterior has stopped moving: the step-wise KL divergence is at most ε, and the position is among the m % most certain. A locked position is no longer computed; its cached keys and values stay for the others to attend to.",
  "Both grids run the same prompt, seed and schedule, one step each in turn, each timed on its own. FLOPs are algorithmic: attention, projections and feed-forward of the computed rows. Time is what this machine measured, observation excluded.",
];

const LEGEND = [
  ["masked", "masked"],
  ["active", "active: computed in every step"],
  ["locked", "locked: no longer computed"],
  ["prompt", "prompt"],
  ["differs", "differs from the baseline"],
];

/** The settings that matter most, in a line. */
function describe({ header: { model, settings, lock }, steps }) {
  const epsilon = lock?.epsilon < 0 ? "never locks" : `ε ${lock?.epsilon ?? "–"}`;
  return [model?.name, `${settings.gen_length} tokens in ${steps} steps`, epsilon, `m ${lock?.percentile ?? "off"}`]
    .filter(Boolean)
    .join(", ");
}

export class Stage {
  /** root: an empty element. options: {plotly: url or null, source: see Share, fetchTop, canStep, importing, extra: node for the Runs side} */
  constructor(
    root,
    { plotly = null, source = {}, fetchTop = null, stepLive = () => false, importing = true, about = ABOUT } = {},
  ) {
    Object.assign(this, { root, pins: new Map(), hover: -1, trace: null, names: NAMES });
    this.gauges = new Gauges();
    this.timeline = new Timeline({
      onMove: (step) => this.#draw(step),
      onPlaying: () => this.#announce(),
      onStepPastEnd: stepLive,
    });
    this.curves = new Curves();
    this.inspector = new Inspector({
      onPin: (cell) => this.pin(cell),
      fetchTop: fetchTop && ((cell, step) => fetchTop(this.trace, cell, step)),
    });
    this.analysis = new Analysis({ onSeek: (step) => this.timeline.seek(step) });
    this.runs = new Runs({
      onShow: (trace) => {
        this.show(trace);
        this.root.scrollIntoView({ block: "start" });
      },
      onCompare: (a, b) => this.#compare(a, b),
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
    this.sides = LANES.map((key, i) => this.#side(key, i));
    this.status = h("p", { class: "sl-status", role: "status" });
    this.summary = h("p", { class: "sl-hidden", "aria-live": "polite" });
    this.label = h("p", { class: "sl-run-label" });
    this.tip = h("div", { class: "sl-tip", hidden: true, "aria-hidden": "true" });
    const panels = [
      ["Analysis", this.analysis.node, () => this.analysis.redraw()],
      ["Runs", this.runs.node],
      ["Export", this.share.node],
      [
        "About",
        h(
          "div",
          { class: "sl-about" },
          about.map((text) => h("p", {}, text)),
        ),
      ],
    ];
    this.tabs = tabs(panels, "More about this run");
    root.append(
      this.gauges.node,
      h("div", { class: "sl-bar-row" }, this.#legend(), this.label),
      this.status,
      h(
        "section",
        { class: "sl-grids", "aria-label": "Token grids" },
        this.sides.map(({ node }) => node),
      ),
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
  show(trace, { play = false, live = false, label = "", step, names = NAMES } = {}) {
    Object.assign(this, { trace, names });
    trace.live = live;
    this.pins.clear();
    this.hover = -1;
    setText(this.label, [label, describe(trace)].filter(Boolean).join(" "));
    this.root.dataset.run = trace.id ?? "";
    this.sides.forEach((side, i) => {
      setText(side.title, names[i]);
      side.labels = { count: -2 };
    });
    this.inspector.load(trace, names);
    this.inspector.drawPins(this.pins);
    this.share.load(trace);
    this.curves.pins = this.pins;
    this.#resize();
    this.curves.load(trace, names);
    this.analysis.load(trace, names, this.colours);
    this.timeline.load(trace, { live, step: step ?? (play || live ? -1 : trace.count - 1) });
    if (play) this.timeline.play();
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

  #side(key, index) {
    const canvas = h("canvas", {
      class: "sl-grid",
      tabindex: 0,
      role: "application",
      "aria-roledescription": "token grid",
      "aria-label": NAMES[index],
      "data-lane": key,
    });
    const title = h("h2", {}, NAMES[index]);
    const subtitle = h("p", {}, SUBTITLES[index]);
    const text = h("p", { class: "sl-text", dir: "auto" });
    const side = {
      key,
      canvas,
      title,
      text,
      subtitle,
      grid: new Grid(canvas),
      labels: { count: -2 },
      node: h(
        "article",
        { class: `sl-side sl-of-${key}` },
        h("header", {}, title, subtitle),
        canvas,
        h("details", { class: "sl-reading" }, h("summary", {}, "Read as text"), text),
      ),
    };
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
    setText(this.tip, this.inspector.describe(this.trace[side.key], cell, this.timeline.step));
    const box = this.root.getBoundingClientRect();
    this.tip.hidden = false;
    this.tip.style.transform = `translate(${Math.min(event.clientX - box.left + 14, box.width - 260)}px, ${event.clientY - box.top + 18}px)`;
    if (cell !== this.hover) {
      this.hover = cell;
      this.redraw();
    }
  }

  #focusCell(side, cell) {
    this.hover = cell;
    setText(this.summary, this.inspector.describe(this.trace[side.key], cell, this.timeline.step));
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

  /** Everything at one step. Cheap: two canvases and a few text nodes. */
  #draw(step) {
    const { trace } = this;
    if (!trace || !this.sides[0].grid.box) return;
    const lit = !(reducedMotion() && (this.timeline.playing || this.timeline.follow));
    for (const side of this.sides) {
      const lane = trace[side.key];
      const t = lane.clamp(step);
      if (side.labels.count !== t) {
        const tokens = lane.tokens(t);
        side.labels = { count: t, list: side.grid.box.w >= 22 ? trace.pieces.labels(tokens, trace.eosId) : [], tokens };
      }
      side.grid.draw({
        lane,
        other: side.key === "surelock" ? trace.baseline : null,
        step,
        promptLength: trace.promptLength,
        labels: side.labels.list,
        fresh: lit,
        hover: this.hover,
        pins: this.pins,
      });
      if (side.node.querySelector("details").open)
        setText(side.text, trace.pieces.text(side.labels.tokens, "▁", trace.eosId));
    }
    this.gauges.draw(trace, step);
    this.curves.moveTo(step);
    this.analysis.moveTo(step);
    this.inspector.draw(this.hover, step, this.pins);
    this.root.dataset.step = step;
    this.root.dataset.count = trace.count;
    if (!this.timeline.playing) this.announceLater();
  }

  /** The screen reader's summary of what the grids show. */
  #announce() {
    const { trace } = this;
    const now = trace?.totals(this.timeline.step);
    if (!now) return;
    const text =
      `Step ${this.timeline.step + 1} of ${trace.count}. ${this.names[1]}: ${now.locked} of ${trace.n} positions locked, ${percent(now.flopsShare)} of the baseline's computation so far, ` +
      `${now.equal} of ${now.both} tokens equal to the baseline's.`;
    setText(this.summary, text);
    this.sides.forEach(({ canvas, key }, i) => {
      const states = trace[key].row(this.timeline.step);
      const count = (state) => states.reduce((sum, s) => sum + (s === state), 0);
      canvas.setAttribute(
        "aria-label",
        `${this.names[i]}: ${count(0)} masked, ${count(1)} active, ${count(2)} locked. Arrow keys move over the cells, Enter pins one.`,
      );
    });
  }

  #compare(a, b) {
    this.show(Trace.pair(a.trace, b.trace), {
      names: [`SureLock, run ${a.number}`, `SureLock, run ${b.number}`],
      label: `Run ${a.number} beside run ${b.number}:`,
    });
    this.root.scrollIntoView({ block: "start" });
  }
}
