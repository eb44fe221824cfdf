// The KL of one position in every lane, step by step. The scale is the same for all positions, so that ε keeps its
// place.

import { h, svg } from "../dom.js";

const WIDTH = 320;
const HEIGHT = 132;
const LEFT = 34;
const RIGHT = 314;
const TOP = 8;
const BOTTOM = 114;
const LOW = -9; // the lowest power of ten, in nats; smaller values are drawn at the bottom
const HIGH = 1.5; // the highest power of ten, in nats
const DASHES = ["7 4", "", "2 3", "7 3 2 3"];

/** The distance of a value from the top of the picture. */
function y(nats) {
  const power = Math.max(LOW, Math.min(HIGH, Math.log10(nats)));
  return TOP + ((HIGH - power) / (HIGH - LOW)) * (BOTTOM - TOP);
}

/**
 * {path, locks}: a position's KL as a path, interrupted at steps that did not compute it; and the points of its
 * locks.
 */
function lineOf(lane, cell, x) {
  let path = "";
  let pen = "M";
  let last = [x(0), BOTTOM];
  const locks = [];
  for (let t = 0; t < lane.count; t++) {
    const nats = lane.kl[t * lane.n + cell];
    if (Number.isFinite(nats)) {
      last = [x(t), y(nats)];
      path += `${pen}${last.map((at) => at.toFixed(1))}`;
      pen = "L";
    } else pen = "M";
    if (lane.steps[t].locked.includes(cell)) locks.push([x(t), last[1]]);
  }
  return { path, locks };
}

/** The picture of one position's KL. */
export class CellCurve {
  constructor() {
    this.lines = svg("g");
    this.cursors = svg("g");
    this.axis = svg("g", { class: "sl-cell-axis" });
    this.picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" }, this.axis, this.cursors, this.lines);
    this.box = h("div.sl-cell-box", this.picture);
    this.node = h("figure.sl-cell-curve", h("figcaption", "KL in nats, step by step"), this.box);
  }

  load(trace) {
    this.trace = trace;
    this.drawn = "";
    this.steps = Math.max(trace.count, trace.race.live ? trace.steps : 1, 2);
    this.cursors.replaceChildren(
      ...trace.lanes.map((lane) =>
        svg("line", { class: `sl-cell-cursor sl-lane-${trace.colourOf(lane) + 1}`, y1: TOP, y2: BOTTOM }),
      ),
    );
    this.axis.replaceChildren(
      ...[-8, -4, 0].flatMap((power) => [
        svg("line", { x1: LEFT, x2: RIGHT, y1: y(10 ** power), y2: y(10 ** power) }),
        svg("text", { x: LEFT - 4, y: y(10 ** power) + 4, "text-anchor": "end" }, power ? `1e${power}` : "1"),
      ]),
      svg("text", { x: LEFT, y: HEIGHT - 5 }, "step 1"),
      svg("text", { x: RIGHT, y: HEIGHT - 5, "text-anchor": "end" }, `step ${this.steps}`),
    );
  }

  #x = (t) => LEFT + (t / (this.steps - 1)) * (RIGHT - LEFT);

  draw(cell, step) {
    const { trace } = this;
    const key = [cell, ...trace.lanes.map(({ count }) => count)].join();
    if (this.drawn !== key) this.#lines(cell);
    this.drawn = key;
    trace.lanes.forEach((lane, i) => {
      const t = trace.race.reached(lane, step);
      const cursor = this.cursors.children[i];
      cursor.style.visibility = t < 0 ? "hidden" : "";
      cursor.style.transform = `translateX(${this.#x(Math.max(0, t))}px)`;
    });
  }

  #lines(cell) {
    const { lanes } = this.trace;
    this.picture.setAttribute("aria-label", `KL of position ${cell}: ${lanes.map(({ name }) => name).join(", ")}`);
    const drawn = lanes.map((lane) => {
      const colour = this.trace.colourOf(lane);
      const { path, locks } = lineOf(lane, cell, this.#x);
      const mark = ([x, at]) => svg("path", { class: "sl-cell-lock", d: `M${x},${at - 6}l6,6l-6,6l-6,-6z` });
      const line = svg("path", { class: "sl-cell-line", d: path, "stroke-dasharray": DASHES[colour] });
      return svg("g", { class: `sl-lane-${colour + 1}` }, line, ...locks.map(mark));
    });
    this.lines.replaceChildren(...drawn);
  }

  /** The distance of a value from the top, as a share of the picture's height. */
  place(nats) {
    return y(nats) / HEIGHT;
  }

  /** The power of ten at a vertical coordinate of the window. */
  power(clientY) {
    const { top, height } = this.picture.getBoundingClientRect();
    const at = ((clientY - top) / height) * HEIGHT;
    return HIGH - ((at - TOP) / (BOTTOM - TOP)) * (HIGH - LOW);
  }
}
