// A lane's two live curves under its grid: the median KL with the line ε, and the work saved so far.

import { percent, setText } from "../dom.js";
import { columnsOf, Strip } from "./strip.js";

const [LOW, HIGH] = [-8, 1]; // powers of ten of the KL, in nats
const EDGE = 2; // pixels above and below

const depth = (nats) => (Math.log10(Math.max(nats, 1e-12)) - LOW) / (HIGH - LOW);

class Spark extends Strip {
  /** of(step's record): a number from 0 at the foot to 1, or NaN. */
  constructor(lane, what, of, options) {
    super(`sl-spark-${what}`, options);
    Object.assign(this, { lane, of });
  }

  draw(trace, colours, colour) {
    const { canvas, lane, of } = this;
    const [columns, last] = columnsOf(trace);
    const ratio = Math.min(devicePixelRatio || 1, 2);
    const [width, height] = [Math.max(1, canvas.clientWidth), Math.max(1, canvas.clientHeight)];
    this.columns = columns;
    Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const y = (value) => height - EDGE - Math.max(0, Math.min(1, value)) * (height - 2 * EDGE);
    const across = [0, width].map((x) => [x, y(this.line)]);
    if (this.line !== undefined) line(pen, across, colours.activeRing, [4, 3]);
    const points = [];
    for (let column = 0; column <= last; column++) {
      const t = trace.race.reached(lane, column);
      const value = t < 0 ? NaN : of(lane.steps[t]);
      if (!Number.isNaN(value)) points.push([((column + 0.5) * width) / columns, y(value)]);
      if (lane.endsAt(t)) break;
    }
    line(pen, points, colour, []);
  }
}

function line(pen, points, colour, dash) {
  pen.beginPath();
  for (const point of points) pen.lineTo(...point);
  pen.strokeStyle = colour;
  pen.lineWidth = 1.6;
  pen.setLineDash(dash);
  pen.stroke();
}

export class Sparks {
  constructor(lane, { onSeek }) {
    this.lane = lane;
    this.kl = new Spark(lane, "kl", ({ median }) => depth(median), { onSeek, label: "KL" });
    const saved = ({ totalFlops, totalBaseline }) => 1 - totalFlops / totalBaseline;
    this.saved = new Spark(lane, "saved", saved, { onSeek, label: "saved" });
    if (Number.isFinite(lane.epsilon)) this.kl.line = depth(lane.epsilon);
    this.kl.canvas.setAttribute("aria-label", `${lane.name}: median KL of each step, and the line ε`);
    this.saved.canvas.setAttribute("aria-label", `${lane.name}: work saved so far`);
    this.kl.node.title = "Median KL of the computed tokens, step by step; the dashed line is ε";
    this.saved.node.title = "Work saved so far, of computing every token";
  }

  draw(trace, colours) {
    const colour = colours.lanes[trace.lanes.indexOf(this.lane)];
    for (const spark of [this.kl, this.saved]) spark.draw(trace, colours, colour);
  }

  moveTo(trace, step) {
    for (const spark of [this.kl, this.saved]) spark.moveTo(step);
    const now = this.lane.at(trace.race.reached(this.lane, step));
    setText(this.saved.label, now ? `saved ${percent(this.saved.of(now))}` : "saved");
  }
}
