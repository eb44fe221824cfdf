// The raster of a lane's run up to the cursor: one row per position, one column per step of the cursor, coloured by
// state.

import { count } from "../dom.js";
import { columnsOf, lastColumn, Strip, sharpness } from "./strip.js";

const SHADES = ["rasterMasked", "rasterActive", "rasterLocked", "rasterResting", "rasterWaiting"]; // by state

const EXPLAINED = "Each line is a token, each column a step"; // shown in the part that is not drawn yet

/** The channels of "#rrggbb". */
const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

/** The raster of a lane. */
export class Raster extends Strip {
  #drawn = -1; // the last column that is drawn

  constructor(lane) {
    super("sl-raster-box", EXPLAINED);
    this.lane = lane;
  }

  /** Draws all columns up to the cursor's step. */
  draw(trace, colours, step) {
    const { lane, canvas } = this;
    const pixels = Math.round((canvas.clientHeight || lane.n) * sharpness());
    const height = Math.min(lane.n, pixels);
    this.columns = columnsOf(trace);
    Object.assign(canvas, { width: this.columns, height }); // setting the size clears the canvas
    this.pen = canvas.getContext("2d");
    this.image = this.pen.createImageData(1, height);
    this.shades = SHADES.map((name) => channels(colours[name]));
    this.#drawn = -1;
    canvas.setAttribute("aria-label", `${lane.name}: states of ${lane.n} positions over ${count(lane.count, "step")}`);
    this.moveTo(trace, step);
  }

  /** Draws the columns up to a step of the cursor, and clears the columns after it. */
  moveTo(trace, step) {
    this.place(step);
    const { columns, canvas, pen } = this;
    if (!columns) return;
    const last = lastColumn(trace, step);
    if (last < this.#drawn) pen.clearRect(last + 1, 0, columns, canvas.height);
    for (let column = this.#drawn + 1; column <= last; column++) this.#column(trace, column);
    this.#drawn = last;
  }

  /** Draws a column. Columns after a lane's last step stay empty: this time is saved. */
  #column(trace, column) {
    const { lane, image, pen, shades } = this;
    const [t, before] = [column, column - 1].map((at) => trace.race.reached(lane, at));
    if (column && lane.endsAt(before)) return;
    const states = lane.row(t);
    const { data, height } = image;
    for (let y = 0; y < height; y++) {
      const from = Math.floor((y * lane.n) / height);
      const end = Math.max(from + 1, Math.floor(((y + 1) * lane.n) / height));
      const sum = [0, 0, 0];
      for (let p = from; p < end; p++) for (let k = 0; k < 3; k++) sum[k] += shades[states[p]][k];
      for (let k = 0; k < 3; k++) data[4 * y + k] = sum[k] / (end - from);
      data[4 * y + 3] = 255;
    }
    pen.putImageData(image, column, 0);
  }
}
