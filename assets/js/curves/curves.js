// The four figures, drawn by Plotly. While a run grows they are redrawn at most once a second.
// The cursor is a thin element over every plot, so that moving the cursor redraws no plot.

import "../loaded_first.js";
import { explained } from "../below/term.js";
import { h, inView, throttle, watchView } from "../dom.js";
import { page } from "../run/state.js";
import { chapters } from "../trace/chapters.js";
import { number } from "../trace/described.js";
import { quantile } from "../trace/lane.js";
import { pinName } from "../trace/prose.js";

const REDRAW_MS = 1000;
// While a run grows, the figures rest after a redraw for PARTS times as long as it took, since more redraws would slow
// down the page, but not for longer than MOST_REST_MS.
const PARTS = 60;
const MOST_REST_MS = 5000;
const KL_FLOOR = 1e-12; // smaller values are drawn as this one
const KL_HINT = "A diamond is where a pinned token locks.";
const KL_CAPTION =
  "How much each prediction has changed since it was last computed. Thick: the median of the tokens that the step computed; when stable tokens lock they no longer count, and it rises. Thin: the median of all written tokens, of each the last value.";
const MARKS = { "First lock": "first lock", "Half locked": "half locked", Fork: "first difference" };
const FIGURES = [
  { key: "kl", title: "Step-wise KL", terms: ["KL"], caption: KL_CAPTION, hint: KL_HINT, y: "nats", log: true },
  { key: "flops", title: "FLOPs per step, relative to computing every position", terms: ["FLOPs"], y: "share" },
  { key: "saved", title: "FLOPs saved so far, relative to computing every position", y: "share saved" },
  { key: "time", title: "Time per step", y: "ms" },
];

/**
 * Loads plotly.min.js. address(): a promise of its address.
 * Resolves to Plotly, or to null if the script cannot be loaded: the rest of the page works without it.
 */
async function loadPlotly(address) {
  const url = await address();
  return new Promise((resolve) => {
    const onload = () => resolve(window.Plotly ?? null);
    const onerror = () => resolve(null);
    document.head.append(h("script", { src: url, onload, onerror }));
  });
}

const QUIET = { responsive: false, displayModeBar: false };
const LEGEND = { orientation: "h", traceorder: "normal", x: 0, y: 1.02, yanchor: "bottom" };

const medians = new WeakMap(); // by lane, the latest result of `writtenMedians`

/** By step of a lane, the median KL of all written tokens. A token counts with its last KL. */
export function writtenMedians(lane) {
  const known = medians.get(lane);
  if (known?.length === lane.count) return known;
  const last = new Float32Array(lane.n).fill(NaN);
  const values = Array.from({ length: lane.count }, (_, t) => {
    for (let p = 0; p < lane.n; p++) {
      const kl = lane.kl[t * lane.n + p];
      if (!Number.isNaN(kl)) last[p] = kl;
    }
    const written = last.filter((kl, p) => Number.isFinite(kl) && lane.token(p, t) >= 0).sort();
    return quantile(written, 0.5);
  });
  medians.set(lane, values);
  return values;
}

/** The shape of an epsilon's line, and the place of its name. */
const ACROSS = { type: "line", xref: "paper", x0: 0, x1: 1 };
const AT_RIGHT = { xref: "paper", x: 1, xanchor: "right", yanchor: "bottom" };

/** The dashes of the lanes' lines, so that lanes differ not only by colour. */
const DASHES = ["dash", "solid", "dot", "dashdot"];

/** A lane's name, escaped so that Plotly reads no markup and no template in it. */
const plain = (name) => name.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll("%{", "% {");

const level = (x) => (Number.isFinite(x) ? Math.max(x, KL_FLOOR) : null);
const range = (n, f) => Array.from({ length: n }, (_, i) => f(i));

/** The figures beneath the race. */
export class Curves {
  /**
   * Adds the figures to a stage.
   * plotly: the argument of loadPlotly. With null nothing is loaded, and window.Plotly is taken if there is one.
   */
  constructor(stage, { plotly }) {
    this.plots = FIGURES.map((figure) => {
      const plot = h("div.sl-plot");
      const cursor = h("div.sl-plot-cursor", { hidden: true });
      const caption = h("figcaption", explained(figure.title, figure.terms ?? []));
      const hint = figure.hint ? h("p.sl-hint.sl-figure-hint", { hidden: true }, figure.hint) : null;
      const description = figure.caption && h("p.sl-hint.sl-figure-hint", explained(figure.caption, []));
      const node = h("figure.sl-figure", caption, description ?? null, hint, h("div.sl-plot-box", plot, cursor));
      return { ...figure, plot, cursor, node, hint };
    });
    this.note = h("p.sl-hint", { hidden: true }, "The curves could not be loaded.");
    const nodes = this.plots.map(({ node }) => node);
    this.node = h("section.sl-curves", { "aria-label": "Curves" }, this.note, nodes);
    this.rest = REDRAW_MS;
    this.redraw = throttle(
      () => this.draw(),
      () => this.rest,
    );
    const sizes = new ResizeObserver(() => this.redraw());
    for (const { plot } of this.plots) sizes.observe(plot);
    watchView(this.node, () => this.redraw());
    for (const { node } of this.plots) watchView(node, () => this.trace?.race.live && this.redraw());
    stage.lower.append(this.node);
    this.theme(stage.colours);
    page.follow(["laid"], ({ trace }) => trace && this.load(trace));
    page.follow(["laid", "lesson"], ({ lesson }) => this.show(lesson?.lanes ?? null));
    page.follow(["records", "pins"], () => this.redraw());
    page.follow(["ended"], ({ ended, trace }) => ended && ended === trace && this.draw());
    page.follow(
      ["drawn"],
      ({ trace, drawn: { step } }) => trace && this.moveTo(trace.race.reached(trace.subject, step)),
    );
    if (plotly) loadPlotly(plotly).then((loaded) => this.use(loaded));
    else this.use(window.Plotly ?? null);
  }

  /** The lanes that are drawn. */
  get lanes() {
    return this.trace.lanes.filter(({ id }) => this.only?.includes(id) ?? true);
  }

  /** Draws only some lanes, such as those of a lesson. only: their ids; null for all. */
  show(only) {
    this.only = only;
    this.redraw();
  }

  use(plotly) {
    this.plotly = plotly;
    this.note.hidden = Boolean(plotly);
    this.redraw();
  }
  load(trace) {
    this.trace = trace;
    this.redraw();
  }
  theme(colours) {
    this.colours = colours;
    this.redraw();
  }

  moveTo(step) {
    this.step = step;
    if (!inView(this.node)) return;
    for (const { plot, cursor } of this.plots) {
      const axis = plot._fullLayout?.xaxis;
      const size = plot._fullLayout?._size;
      if (!axis || !size || step < 0) {
        cursor.hidden = true;
        continue;
      }
      const x = axis.d2p(step + 1);
      cursor.hidden = x < -1 || x > size.w + 1;
      // A transform moves the cursor without a new layout of the page.
      cursor.style.cssText = `height:${size.h}px;transform:translate(${size.l + x}px,${size.t}px)`;
    }
  }

  /** Draws all figures if their section is in view. While a run grows, draws only those in view, one per frame. */
  async draw() {
    if (!this.plotly || !this.trace || !this.colours || !this.node.clientWidth || !inView(this.node)) return;
    const { live } = this.trace.race;
    let took = 0;
    for (const figure of this.plots) {
      if (live && !inView(figure.node)) continue;
      const begun = performance.now();
      this.#drawOne(figure);
      took += performance.now() - begun;
      if (live) await new Promise(requestAnimationFrame);
    }
    this.rest = live ? Math.min(Math.max(REDRAW_MS, PARTS * took), MOST_REST_MS) : REDRAW_MS;
    this.moveTo(this.step);
  }

  #drawOne(figure) {
    this.plotly
      .react(figure.plot, this.#data(figure.key), this.#layout(figure), QUIET)
      .then(() => this.#makeRoom(figure));
  }

  /** Makes a figure taller by the height of its legend, so that the lines keep their height. */
  #makeRoom(figure) {
    const tall = Math.ceil(figure.plot._fullLayout.legend?._height ?? 0);
    if (figure.tall === tall) return;
    figure.tall = tall;
    this.plotly.relayout(figure.plot, { height: this.#layout(figure).height });
  }

  #data(key) {
    const linesOf = (f) => this.lanes.map((lane) => this.#line(lane, f));
    if (key === "flops") return linesOf((s) => s.flops / s.baselineFlops);
    if (key === "saved") return linesOf((s) => 1 - s.totalFlops / s.totalBaseline);
    if (key === "time") {
      const { clocked } = this.trace.race;
      return linesOf((s) => 1000 * s.seconds).filter((_, i) => clocked.includes(this.lanes[i]));
    }
    const medians = linesOf((s) => level(s.median));
    for (const line of medians) line.name += ", median";
    return [...this.#band(), ...this.#writtenMedians(), ...medians, ...this.#pinLines()];
  }

  #place(lane) {
    return this.trace.colourOf(lane);
  }

  #line(lane, f) {
    const i = this.#place(lane);
    return {
      x: range(lane.count, (t) => t + 1),
      y: range(lane.count, (t) => f(lane.steps[t], t)),
      mode: "lines",
      name: plain(lane.name),
      line: { color: this.colours.lanes[i], dash: DASHES[i], width: 2 },
      hovertemplate: "step %{x}: %{y:.3~g}",
    };
  }

  /** The band of the middle 80 % of the computed positions, of the last lane alone: four bands could not be read. */
  #band() {
    const lane = this.lanes.at(-1);
    const edge = (side, fill) => ({
      ...this.#line(lane, (s) => level(s[side])),
      line: { color: "transparent" },
      name: `${plain(lane.name)}, 10–90 %`,
      hoverinfo: "skip",
      hovertemplate: undefined,
      showlegend: Boolean(fill),
      fill,
      fillcolor: `${this.colours.lanes[this.#place(lane)]}2e`,
    });
    return [edge("low"), edge("high", "tonexty")];
  }

  /** The thin lines: the lanes' medians over all written tokens, see writtenMedians. */
  #writtenMedians() {
    return this.lanes.map((lane) => {
      const values = writtenMedians(lane);
      const line = this.#line(lane, (_, t) => level(values[t]));
      return {
        ...line,
        line: { ...line.line, width: 0.8 },
        showlegend: false,
        hoverinfo: "skip",
        hovertemplate: undefined,
      };
    });
  }

  /** The moments of the race as upright lines with their names: [shapes, annotations]. */
  #marks() {
    const { trace, colours } = this;
    const marked = chapters(trace).filter(({ name }) => MARKS[name] && trace.subject);
    const places = marked.map(({ name, at }) => ({ x: at + 1, text: MARKS[name] }));
    const line = { color: colours.muted, dash: "dot", width: 1 };
    const shapes = places.map(({ x }) => ({ type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line }));
    const font = { size: 11, color: colours.muted };
    const upright = {
      textangle: -90,
      showarrow: false,
      yref: "paper",
      y: 0,
      xanchor: "right",
      yanchor: "bottom",
      font,
    };
    return [shapes, places.map(({ x, text }) => ({ ...upright, x, text }))];
  }

  /** The KL of pinned positions in every lane that is shown, with marks at their locks. */
  #pinLines() {
    const lines = [];
    for (const { hint } of this.plots) if (hint) hint.hidden = page.now.pins.size === 0;
    for (const [cell, pin] of page.now.pins) {
      const name = plain(pinName(this.trace, cell));
      const colour = this.colours.pins[pin];
      this.lanes.forEach((lane, at) => {
        if (cell >= lane.n) return;
        const line = this.#line(lane, (_, t) => level(lane.kl[t * lane.n + cell]));
        const whose = `${name}, ${plain(lane.name)}`;
        lines.push({
          ...line,
          name,
          showlegend: at === this.lanes.length - 1,
          line: { ...line.line, color: colour, width: 1.8 },
          hovertemplate: `${whose}, step %{x}: %{y:.1e}<extra></extra>`,
        });
        const locks = range(lane.count, (t) => t).filter((t) => lane.steps[t].locked.includes(cell));
        if (!locks.length) return;
        lines.push({
          x: locks.map((t) => t + 1),
          y: locks.map((t) => line.y[t] ?? KL_FLOOR),
          mode: "markers",
          name: `${name} locks`,
          showlegend: false,
          marker: { symbol: "diamond", size: 11, color: colour, line: { color: this.colours.panel, width: 1.5 } },
          hovertemplate: `${whose} locks at step %{x}<extra></extra>`,
        });
      });
    }
    return lines;
  }

  /** The lines of the lanes' epsilons, every value once. If there are several values, they have their lanes' names. */
  #epsilons() {
    const having = this.lanes.filter(({ epsilon }) => Number.isFinite(epsilon) && epsilon > 0);
    const values = [...new Set(having.map(({ epsilon }) => epsilon))];
    if (values.length === 1)
      return [{ value: values[0], colour: this.colours.activeRing, text: `ε = ${number(values[0])}` }];
    return values.map((value) => {
      const sharing = having.filter(({ epsilon }) => epsilon === value);
      const names = plain(sharing.map(({ name }) => name).join(", "));
      const colour = this.colours.lanes[this.#place(sharing[0])];
      return { value, colour, text: `ε = ${number(value)} (${names})` };
    });
  }

  #layout({ key, y, log, plot, tall = 0 }) {
    const { colours, trace } = this;
    const narrow = this.plots[0].plot.clientWidth < 420;
    const axis = { color: colours.muted, gridcolor: colours.line, zeroline: false, tickfont: { size: 11 } };
    const epsilons = key === "kl" ? this.#epsilons() : [];
    const dashed = (color) => ({ color, dash: "dashdot", width: 1.5 });
    const [marks, names] = key === "kl" && this.lanes.includes(trace.subject) ? this.#marks() : [[], []];
    const note = { showarrow: false, bgcolor: colours.panel, borderpad: 1, font: { size: 11, color: colours.ink } };
    return {
      width: plot.clientWidth, // without it Plotly would keep the width of the first drawing
      height: key === "kl" ? 270 + tall : 190,
      margin: { l: 54, r: 10, t: 6, b: 34 },
      paper_bgcolor: "transparent",
      plot_bgcolor: "transparent",
      font: { color: colours.ink, size: 12, family: "SL Sans, system-ui, sans-serif" },
      xaxis: {
        ...axis,
        title: { text: "step", font: { size: 11 }, standoff: 4 },
        range: [0.5, Math.max(trace.count, trace.race.live ? trace.steps : 1) + 0.5],
      },
      yaxis: {
        ...axis,
        title: { text: y, font: { size: 11 } },
        type: log ? "log" : "linear",
        exponentformat: "e",
        nticks: 5,
        rangemode: log ? "normal" : "tozero",
        tickformat: y.startsWith("share") ? ".0%" : undefined,
      },
      legend: { ...LEGEND, font: { size: narrow ? 10 : 11 } },
      showlegend: key === "kl",
      hovermode: "closest",
      uirevision: trace.lanes.map(({ id }) => id).join(),
      shapes: [
        ...epsilons.map(({ value, colour }) => ({ ...ACROSS, y0: value, y1: value, line: dashed(colour) })),
        ...marks,
      ],
      annotations: [
        ...epsilons.map(({ value, text }) => ({ ...note, ...AT_RIGHT, y: Math.log10(value), text })),
        ...names,
      ],
    };
  }
}
