// The live charts of all lanes up to the cursor: the change of the predictions, and the work saved so far.

import { h, percent, setText, short } from "../dom.js";
import { page } from "../run/state.js";
import { columnsOf, lastColumn, Strip, sharpness } from "./strip.js";

const SHALLOW = 40; // pixels; on a phone charts are lower, and their upper half contains the numbers
const LOW = -8; // powers of ten of the KL, in nats
const HIGH = 1;
const EDGE = 3; // pixels above and below
const DASHES = [[5, 3], [], [2, 3], [7, 3, 2, 3]]; // the dashes of the lanes' lines

const depth = (nats) => (Math.log10(Math.max(nats, 1e-12)) - LOW) / (HIGH - LOW);
const saved = ({ totalFlops, totalBaseline }) => 1 - totalFlops / totalBaseline;

/** The charts: name, unit, and functions from a lane's step to the value in words and to the height from 0 to 1. */
const CHARTS = [
  {
    key: "kl",
    name: "Change of the predictions",
    unit: "median KL, nat",
    textOf: ({ median }) => (Number.isFinite(median) ? short(median) : "–"),
    height: ({ median }) => depth(median),
  },
  { key: "saved", name: "Work saved so far", unit: "%", textOf: (step) => percent(saved(step)), height: saved },
];

class Chart {
  #drawn = -1; // the last column that is drawn

  constructor({ key, name, unit, textOf, height }) {
    Object.assign(this, { key, textOf, height, values: [] });
    this.strip = new Strip(`sl-chart-${key}`);
    this.values = h("span.sl-chart-values");
    const caption = h("figcaption", h("strong", name), h("span.sl-chart-unit", unit), this.values);
    this.node = h("figure.sl-chart", caption, this.strip.node);
    this.strip.canvas.setAttribute("aria-label", `${name}, ${unit}, of each step up to the cursor`);
  }

  load(trace) {
    this.rows = trace.lanes.map((lane) => {
      const value = h("span", "–");
      const name = h("span.sl-hidden", `${lane.name}: `);
      const node = h(`span.sl-chart-value.sl-lane-${trace.colourOf(lane) + 1}`, { title: lane.name }, name, value);
      return { lane, value, node };
    });
    this.values.replaceChildren(...this.rows.map(({ node }) => node));
    this.strip.columns = 0;
  }

  /** Draws everything up to the cursor's step. */
  draw(trace, colours, step) {
    const { canvas } = this.strip;
    const ratio = sharpness();
    this.colours = colours;
    this.size = [Math.max(1, canvas.clientWidth), Math.max(1, canvas.clientHeight)];
    const [width, height] = this.size.map((length) => Math.round(length * ratio));
    this.strip.columns = columnsOf(trace);
    Object.assign(canvas, { width, height }); // setting the size clears the canvas
    this.pen = canvas.getContext("2d");
    this.pen.scale(ratio, ratio);
    this.#lines(trace);
    this.#drawn = -1;
    this.moveTo(trace, step);
  }

  #y(share) {
    const [, height] = this.size;
    return height - EDGE - Math.max(0, Math.min(1, share)) * (height - 2 * EDGE);
  }

  /** Draws the lines of the lanes' ε with their names; in the chart of savings, the line of no savings. */
  #lines(trace) {
    const { pen, colours } = this;
    const [width, height] = this.size;
    const levels = trace.lanes
      .map(({ epsilon }) => epsilon)
      .filter((epsilon) => Number.isFinite(epsilon) && epsilon > 0);
    const shown = this.key === "kl" ? [...new Set(levels)].map(depth) : [0];
    for (const share of shown) {
      const y = this.#y(share);
      const across = [
        [0, y],
        [width, y],
      ];
      draw(pen, across, colours.line, []);
      if (this.key !== "kl") continue;
      pen.fillStyle = colours.muted;
      pen.font = "12px system-ui, sans-serif";
      pen.textAlign = "right";
      const baseline = height < SHALLOW ? y + 11 : y - 3;
      pen.fillText("ε", width - 2, Math.min(height - 2, baseline));
    }
  }

  /** Draws the lines up to a step of the cursor. If the cursor has moved back, draws everything again. */
  moveTo(trace, step) {
    const { strip, pen, colours } = this;
    strip.place(step);
    for (const { lane, value } of this.rows) {
      const now = lane.at(trace.race.reached(lane, step));
      setText(value, now ? this.textOf(now) : "–");
    }
    if (!strip.columns) return;
    const last = lastColumn(trace, step);
    if (last < this.#drawn) return this.draw(trace, colours, step);
    for (const { lane } of this.rows) {
      const colour = trace.colourOf(lane);
      draw(pen, this.#points(trace, lane, last), colours.lanes[colour], DASHES[colour]);
    }
    this.#drawn = last;
  }

  /** The points of a lane's line from the last drawn column on. */
  #points(trace, lane, last) {
    const [width] = this.size;
    const points = [];
    for (let column = Math.max(0, this.#drawn); column <= last; column++) {
      const [t, before] = [column, column - 1].map((at) => trace.race.reached(lane, at));
      if (column && lane.endsAt(before)) break;
      const share = t < 0 ? NaN : this.height(lane.steps[t]);
      if (!Number.isNaN(share)) points.push([((column + 0.5) * width) / this.strip.columns, this.#y(share)]);
    }
    return points;
  }
}

function draw(pen, points, colour, dash) {
  pen.beginPath();
  for (const point of points) pen.lineTo(...point);
  pen.strokeStyle = colour;
  pen.lineWidth = 1.6;
  pen.setLineDash(dash);
  pen.stroke();
}

/** Both charts. */
export class Charts {
  constructor() {
    this.charts = CHARTS.map((chart) => new Chart(chart));
    const nodes = this.charts.map(({ node }) => node);
    this.node = h("section.sl-charts", { "aria-label": "Live curves" }, nodes);
    page.follow(["laid"], ({ trace }) => trace && this.#load(trace));
  }

  #load(trace) {
    for (const chart of this.charts) chart.load(trace);
  }

  /** Draws everything up to the cursor's step. */
  draw(trace, colours, step) {
    for (const chart of this.charts) chart.draw(trace, colours, step);
  }

  moveTo(trace, step) {
    for (const chart of this.charts) chart.moveTo(trace, step);
  }
}
