// The four figures, by Plotly, redrawn a few times a second at most. The cursor is a thin element over each plot: moving it costs no redraw.

import { h, inView, throttle, watchView } from "./dom.js";

const REDRAW_MS = 1000;
const KL_FLOOR = 1e-12;
const FIGURES = [
  { key: "kl", title: "Step-wise KL", y: "nats", log: true },
  { key: "flops", title: "FLOPs of the step, relative to the baseline", y: "share" },
  { key: "saved", title: "Cumulative savings", y: "share saved" },
  { key: "time", title: "Time per step", y: "ms" },
];

/** Loads plotly.min.js once. Resolves to Plotly, or to null when it cannot be loaded (then the rest of the page goes on). */
export function loadPlotly(url) {
  if (window.Plotly) return Promise.resolve(window.Plotly);
  return new Promise((resolve) => {
    document.head.append(
      h("script", { src: url, onload: () => resolve(window.Plotly ?? null), onerror: () => resolve(null) }),
    );
  });
}

const range = (n, f) => Array.from({ length: n }, (_, i) => f(i));

export class Curves {
  constructor() {
    this.plots = FIGURES.map((figure) => {
      const plot = h("div", { class: "sl-plot" });
      const cursor = h("div", { class: "sl-plot-cursor", hidden: true });
      return {
        ...figure,
        plot,
        cursor,
        node: h(
          "figure",
          { class: "sl-figure" },
          h("figcaption", {}, figure.title),
          h("div", { class: "sl-plot-box" }, plot, cursor),
        ),
      };
    });
    this.note = h("p", { class: "sl-hint", hidden: true }, "The curves could not be loaded.");
    this.node = h(
      "section",
      { class: "sl-curves", "aria-label": "Curves" },
      this.note,
      this.plots.map(({ node }) => node),
    );
    this.redraw = throttle(() => this.draw(), REDRAW_MS);
    this.pins = new Map();
    new ResizeObserver(() => this.redraw()).observe(this.node);
    watchView(this.node, () => this.redraw());
  }

  use(plotly) {
    this.plotly = plotly;
    this.note.hidden = Boolean(plotly);
    this.redraw();
  }
  load(trace, names) {
    Object.assign(this, { trace, names });
    this.redraw();
  }
  theme(colours) {
    this.colours = colours;
    this.redraw();
  }

  /** Moves the cursors; draws nothing. */
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
      cursor.style.cssText = `height:${size.h}px;transform:translate(${size.l + x}px,${size.t}px)`; // no layout
    }
  }

  draw() {
    if (!this.plotly || !this.trace || !this.colours || !this.node.clientWidth || !inView(this.node)) return;
    for (const figure of this.plots)
      this.plotly.react(figure.plot, this.#data(figure.key), this.#layout(figure), {
        responsive: false,
        displaylogo: false,
        displayModeBar: "hover",
        modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
      });
    this.moveTo(this.step);
  }

  #data(key) {
    const { trace, colours } = this;
    const line = (lane, f, colour, dash, name) => ({
      x: range(lane.count, (t) => t + 1),
      y: range(lane.count, (t) => f(lane.steps[t], t)),
      mode: "lines",
      name,
      line: { color: colour, dash, width: 2 },
      hovertemplate: "step %{x}: %{y:.3~g}",
    });
    const [first, second] = this.names;
    const both = (f) => [
      line(trace.baseline, f, colours.baseline, "dash", first),
      line(trace.surelock, f, colours.surelock, "solid", second),
    ];
    if (key === "flops") return both((s) => s.flops / s.baselineFlops);
    if (key === "saved") return both((s) => 1 - s.totalFlops / s.totalBaseline).slice(1);
    if (key === "time") return both((s) => 1000 * s.seconds);
    const level = (x) => (Number.isFinite(x) ? Math.max(x, KL_FLOOR) : null);
    const lane = trace.surelock;
    const edge = (name, fill) => ({
      ...line(lane, (s) => level(s[name]), "transparent", "solid", "10–90 %"),
      hoverinfo: "skip",
      hovertemplate: undefined,
      showlegend: Boolean(fill),
      fill,
      fillcolor: `${colours.surelock}2e`,
    });
    return [
      edge("low"),
      edge("high", "tonexty"),
      line(trace.baseline, (s) => level(s.median), colours.baseline, "dash", `${first}, median`),
      line(lane, (s) => level(s.median), colours.surelock, "solid", `${second}, median`),
      ...this.#pinLines(level),
    ];
  }

  #pinLines(level) {
    const lines = [];
    for (const [cell, pin] of this.pins)
      for (const [lane, dash] of [
        [this.trace.surelock, "solid"],
        [this.trace.baseline, "dot"],
      ]) {
        if (cell >= lane.n) continue;
        lines.push({
          x: range(lane.count, (t) => t + 1),
          y: range(lane.count, (t) => level(lane.kl[t * lane.n + cell])),
          mode: "lines",
          name: `position ${cell}`,
          showlegend: dash === "solid",
          line: { color: this.colours.pins[pin], dash, width: 1.8 },
          hovertemplate: "step %{x}: %{y:.2e}",
        });
      }
    return lines;
  }

  #layout({ key, y, log }) {
    const { colours, trace } = this;
    const narrow = this.plots[0].plot.clientWidth < 420;
    const axis = { color: colours.muted, gridcolor: colours.line, zeroline: false, tickfont: { size: 11 } };
    const epsilon = key === "kl" && Number.isFinite(trace.epsilon) && trace.epsilon > 0 ? trace.epsilon : null;
    return {
      height: key === "kl" ? 250 : 190,
      margin: { l: 54, r: 10, t: 6, b: 34 },
      paper_bgcolor: "transparent",
      plot_bgcolor: "transparent",
      font: { color: colours.ink, size: 12, family: "system-ui, sans-serif" },
      xaxis: {
        ...axis,
        title: { text: "step", font: { size: 11 }, standoff: 4 },
        range: [0.5, Math.max(trace.count, trace.live ? trace.steps : 1) + 0.5],
      },
      yaxis: {
        ...axis,
        title: { text: y, font: { size: 11 } },
        type: log ? "log" : "linear",
        exponentformat: "power",
        nticks: 5,
        rangemode: log ? "normal" : "tozero",
        tickformat: y.startsWith("share") ? ".0%" : undefined,
      },
      legend: {
        orientation: "h",
        traceorder: "normal",
        x: 0,
        y: 1.02,
        yanchor: "bottom",
        font: { size: narrow ? 10 : 11 },
      },
      showlegend: key === "kl",
      hovermode: "closest",
      uirevision: trace.id ?? "trace",
      shapes: epsilon
        ? [
            {
              type: "line",
              xref: "paper",
              x0: 0,
              x1: 1,
              y0: epsilon,
              y1: epsilon,
              line: { color: colours.activeRing, width: 1.5, dash: "dashdot" },
            },
          ]
        : [],
      annotations: epsilon
        ? [
            {
              xref: "paper",
              x: 1,
              y: Math.log10(epsilon),
              yanchor: "bottom",
              xanchor: "right",
              text: `ε = ${epsilon}`,
              showarrow: false,
              bgcolor: colours.panel,
              borderpad: 1,
              font: { size: 11, color: colours.ink },
            },
          ]
        : [],
    };
  }
}
