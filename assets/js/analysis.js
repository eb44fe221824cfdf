// The whole run at a glance: a raster of states (position x step) for each lane, and how long positions stayed active once unmasked.

import { count, h, inView, throttle, watchView } from "./dom.js";
import { LOCKED, MASKED, WAITING } from "./trace.js";

/** "#rrggbb" as one pixel of an ImageData, whatever the machine's byte order. */
const pixel = (hex) =>
  new Uint32Array(Uint8Array.from([...[1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)), 255]).buffer)[0];

const EDGES = [0, 1, 2, 4, 8, 16, 32, 64, 128, Infinity];

/** The name of the delays from `low` steps up to, but not including, `high`. */
function delayLabel(low, high) {
  if (high === Infinity) return `${low} or more`;
  if (high - low > 1) return `${low}–${high - 1} steps`;
  return low === 0 ? "same step" : "1 step";
}

export class Analysis {
  constructor({ onSeek }) {
    this.onSeek = onSeek;
    this.panels = [];
    this.rasters = h("div", { class: "sl-rasters" });
    this.delays = h("div", { class: "sl-delays" });
    const hint =
      "Each row is a position, each column a step: pale is masked, orange is active (computed), blue is locked, " +
      "light blue rests. What is active costs FLOPs. Click to go to a step.";
    const title = h("h4", {}, "How long after its unmasking each position locked");
    this.node = h(
      "div",
      { class: "sl-analysis" },
      h("p", { class: "sl-hint" }, hint),
      this.rasters,
      title,
      this.delays,
    );
    this.redraw = throttle(() => this.draw(), 700);
    watchView(this.node, () => this.redraw());
  }

  load(trace, colours) {
    Object.assign(this, { trace, colours });
    this.panels = trace.lanes.map((lane) => this.#panel(lane));
    this.rasters.replaceChildren(...this.panels.map(({ node }) => node));
    this.redraw();
  }

  #panel(lane) {
    const label = `States of the positions of ${lane.name} over the steps`;
    const canvas = h("canvas", { class: "sl-raster", role: "img", "aria-label": label });
    const cursor = h("div", { class: "sl-raster-cursor" });
    canvas.addEventListener("click", (event) =>
      this.onSeek(Math.floor((event.offsetX / canvas.clientWidth) * this.trace.steps)),
    );
    const box = h("div", { class: "sl-raster-box" }, canvas, cursor);
    const node = h("figure", { class: "sl-raster-figure" }, h("figcaption", {}, lane.name), box);
    return { lane, canvas, cursor, node };
  }

  moveTo(step) {
    this.step = step;
    if (!inView(this.node)) return;
    for (const { cursor } of this.panels) cursor.style.left = `${(100 * (step + 0.5)) / this.trace.steps}%`;
  }

  draw() {
    if (!this.trace || !this.node.clientWidth || !inView(this.node)) return;
    for (const { lane, canvas } of this.panels) {
      this.#raster(canvas, lane);
      canvas.setAttribute(
        "aria-label",
        `${lane.name}: states of ${lane.n} positions over ${count(lane.count, "step")}`,
      );
    }
    this.delays.replaceChildren(...this.trace.lanes.map((lane) => this.#delay(lane)));
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
    const names = ["rasterMasked", "rasterActive", "rasterLocked", "rasterResting", "rasterWaiting"];
    const shades = names.map((name) => pixel(colours[name]));
    for (let t = 0; t < lane.count; t++)
      for (let p = 0; p < n; p++) pixels[p * width + t] = shades[lane.state[t * n + p]];
    pen.putImageData(image, 0, 0);
  }

  /** Steps from unmasking (for the prompt: from the start) to the lock that holds now, as bars. */
  #delay(lane) {
    const last = lane.count - 1;
    const states = lane.row(last);
    const delays = [];
    let never = 0;
    for (let p = 0; p < lane.n; p++) {
      if (states[p] === LOCKED) delays.push(lane.lockStep(p, last) - Math.max(0, lane.unmaskStep(p, last)));
      else if (states[p] !== MASKED && states[p] !== WAITING) never++;
    }
    const counts = EDGES.slice(1).map((top, i) => delays.filter((d) => d >= EDGES[i] && d < top).length);
    const rows = counts.map((count, i) => [delayLabel(EDGES[i], EDGES[i + 1]), count]).filter(([, c], i) => c || i < 4);
    rows.push(["not locked", never]);
    delays.sort((a, b) => a - b);
    const half = delays[Math.floor(delays.length / 2)];
    const note = delays.length
      ? `${delays.length === 1 ? "1 position is" : `${delays.length} positions are`} locked; half of them within ${count(half, "step")} of being unmasked.`
      : "Nothing has locked.";
    return h(
      "section",
      { class: "sl-delay-side" },
      h("h5", {}, lane.name),
      h("p", { class: "sl-hint" }, note),
      delays.length ? bars(rows, Math.max(1, ...counts, never)) : null,
    );
  }
}

function bars(rows, most) {
  return h(
    "ol",
    { class: "sl-delay" },
    rows.map(([label, count], i) => {
      const fill = h("span", { class: i === rows.length - 1 ? "sl-delay-bar sl-delay-active" : "sl-delay-bar" });
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
