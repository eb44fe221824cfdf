// A lane's whole run at a glance: a row for each position, a column for each step of the cursor, coloured by state.

import { count } from "../dom.js";
import { columnsOf, Strip } from "./strip.js";

const SHADES = ["rasterMasked", "rasterActive", "rasterLocked", "rasterResting", "rasterWaiting"]; // by state

/** "#rrggbb" as one pixel of an ImageData, whatever the machine's byte order. */
const pixel = (hex) =>
  new Uint32Array(Uint8Array.from([...[1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)), 255]).buffer)[0];

export class Raster extends Strip {
  constructor(lane, options) {
    super("sl-raster-box", options);
    this.lane = lane;
  }

  /** Every column anew. After its last step a lane's columns stay empty: that time is saved. */
  draw(trace, colours) {
    const { lane, canvas } = this;
    const { n } = lane;
    const [width, last] = columnsOf(trace);
    this.columns = width;
    if (canvas.width !== width || canvas.height !== n) Object.assign(canvas, { width, height: n });
    const pen = canvas.getContext("2d");
    const image = pen.createImageData(width, n);
    const pixels = new Uint32Array(image.data.buffer);
    const shades = SHADES.map((name) => pixel(colours[name]));
    for (let column = 0; column <= last; column++) {
      const t = trace.race.reached(lane, column);
      const row = lane.row(t);
      for (let p = 0; p < n; p++) pixels[p * width + column] = shades[row[p]];
      if (lane.endsAt(t)) break;
    }
    pen.putImageData(image, 0, 0);
    canvas.setAttribute("aria-label", `${lane.name}: states of ${n} positions over ${count(lane.count, "step")}`);
  }
}
