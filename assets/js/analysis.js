// The whole run at a glance: a raster of states (position x step) for both decoders, and how long positions stayed active once unmasked.

import { h, inView, setText, throttle, watchView } from "./dom.js";
import { ACTIVE, LANES } from "./trace.js";

/** "#rrggbb" as one pixel of an ImageData, whatever the machine's byte order. */
const pixel = (hex) =>
  new Uint32Array(Uint8Array.from([...[1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)), 255]).buffer)[0];

/** The name of the delays from `low` steps up to, but not including, `high`. */
function delayLabel(low, high) {
  if (high === Infinity) return `${low} or more`;
  if (high - low > 1) return `${low}–${high - 1} steps`;
  return low === 0 ? "same step" : "1 step";
}

export class Analysis {
  constructor({ onSeek }) {
    this.panels = LANES.map((key) => {
      const canvas = h("canvas", {
        class: "sl-raster",
        role: "img",
        "aria-label": "States of the positions over the steps",
      });
      const cursor = h("div", { class: "sl-raster-cursor" });
      canvas.addEventListener("click", (event) =>
        onSeek(Math.floor((event.offsetX / canvas.clientWidth) * this.trace.steps)),
      );
      const caption = h("figcaption", {});
      return {
        key,
        canvas,
        cursor,
        caption,
        node: h("figure", { class: "sl-raster-figure" }, caption, h("div", { class: "sl-raster-box" }, canvas, cursor)),
      };
    });
    this.bars = h("ol", { class: "sl-delay" });
    this.delayNote = h("p", { class: "sl-hint" });
    this.node = h(
      "div",
      { class: "sl-analysis" },
      h(
        "p",
        { class: "sl-hint" },
        "Each row is a position, each column a step: pale is masked, orange is active (computed), blue is locked. What is active costs FLOPs. Click to go to a step.",
      ),
      h(
        "div",
        { class: "sl-rasters" },
        this.panels.map(({ node }) => node),
      ),
      h("h4", {}, "How long after its unmasking each position locked"),
      this.delayNote,
      this.bars,
    );
    this.redraw = throttle(() => this.draw(), 700);
    watchView(this.node, () => this.redraw());
  }

  load(trace, names, colours) {
    Object.assign(this, { trace, names, colours });
    this.redraw();
  }

  moveTo(step) {
    this.step = step;
    if (!inView(this.node)) return;
    for (const { cursor } of this.panels)
      cursor.style.left = this.trace ? `${(100 * (step + 0.5)) / this.trace.steps}%` : "0";
  }

  draw() {
    if (!this.trace || !this.node.clientWidth || !inView(this.node)) return;
    this.panels.forEach((panel, i) => {
      setText(panel.caption, this.names[i]);
      this.#raster(panel.canvas, this.trace[panel.key]);
      panel.canvas.setAttribute(
        "aria-label",
        `${this.names[i]}: states of ${this.trace.n} positions over ${this.trace.count} steps`,
      );
    });
    this.#delays();
    this.moveTo(this.step ?? -1);
  }

  #raster(canvas, lane) {
    const { n } = lane;
    const width = this.trace.steps;
    if (canvas.width !== width || canvas.height !== n) Object.assign(canvas, { width, height: n });
    const pen = canvas.getContext("2d");
    const image = pen.createImageData(width, n);
    const pixels = new Uint32Array(image.data.buffer);
    const { colours } = this;
    const shades = [colours.rasterMasked, colours.rasterActive, colours.rasterLocked].map(pixel);
    for (let t = 0; t < lane.count; t++)
      for (let p = 0; p < n; p++) pixels[p * width + t] = shades[lane.state[t * n + p]];
    pen.putImageData(image, 0, 0);
  }

  /** Steps from unmasking (for the prompt: from the start) to the lock that holds now. */
  #delays() {
    const lane = this.trace.surelock;
    const last = lane.count - 1;
    const delays = [];
    let never = 0;
    for (let p = 0; p < lane.n; p++) {
      const lock = lane.lockStep(p, last);
      if (lock >= 0) delays.push(lock - Math.max(0, lane.unmaskStep[p]));
      else if (last >= 0 && lane.row(last)[p] === ACTIVE) never++;
    }
    const edges = [0, 1, 2, 4, 8, 16, 32, 64, 128, Infinity];
    const counts = edges.slice(1).map((top, i) => delays.filter((d) => d >= edges[i] && d < top).length);
    const most = Math.max(1, ...counts, never);
    const rows = counts
      .map((count, i) => [delayLabel(edges[i], edges[i + 1]), count])
      .filter(([, count], i) => count || i < 4);
    rows.push(["still active", never]);
    delays.sort((a, b) => a - b);
    setText(
      this.delayNote,
      delays.length
        ? `${delays.length} positions are locked; half of them within ${delays[Math.floor(delays.length / 2)]} steps of being unmasked.`
        : "Nothing has locked.",
    );
    this.bars.replaceChildren(
      ...rows.map(([label, count]) => {
        const fill = h("span", { class: label === "still active" ? "sl-delay-bar sl-delay-active" : "sl-delay-bar" });
        fill.style.width = `${(100 * count) / most}%`;
        return h(
          "li",
          {},
          h("span", { class: "sl-delay-label" }, label),
          h("span", { class: "sl-delay-track" }, fill),
          h("span", { class: "sl-delay-count" }, String(count)),
        );
      }),
    );
  }
}
