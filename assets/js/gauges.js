// Four numbers for the back row of the room.

import { h, percent, seconds, setText } from "./dom.js";

function gauge(label, extra) {
  const value = h("div", { class: "sl-gauge-value" }, "–");
  const note = h("div", { class: "sl-gauge-note" });
  const bars = h("div", { class: "sl-gauge-bars", "aria-hidden": "true" }, extra);
  return {
    node: h("div", { class: "sl-gauge" }, h("div", { class: "sl-gauge-label" }, label), value, bars, note),
    value,
    note,
  };
}
const bar = (kind) => h("span", { class: `sl-bar sl-bar-${kind}` });

export class Gauges {
  constructor() {
    this.bars = {
      flops: bar("flops"),
      locked: bar("locked"),
      base: bar("baseline"),
      sure: bar("surelock"),
      equal: bar("equal"),
    };
    const { flops, locked, base, sure, equal } = this.bars;
    this.flops = gauge("Computation so far", [flops]);
    this.locked = gauge("Positions locked", [locked]);
    this.time = gauge("Measured time", [base, sure]);
    this.equal = gauge("Same tokens", [equal]);
    this.node = h(
      "section",
      { class: "sl-gauges", "aria-label": "Gauges" },
      this.flops.node,
      this.locked.node,
      this.time.node,
      this.equal.node,
    );
  }

  draw(trace, step) {
    const now = trace.totals(step);
    if (!now) return this.#clear();
    const [base, sure] = now.seconds;
    const speed = sure > 0 ? base / sure : 1;
    setText(this.flops.value, percent(now.flopsShare));
    setText(this.flops.note, "of the baseline’s FLOPs");
    setText(this.locked.value, `${now.locked}`);
    setText(this.locked.note, `of ${trace.n} no longer computed`);
    setText(this.time.value, `${speed.toFixed(2)}×`);
    setText(this.time.note, `${seconds(sure)} against ${seconds(base)}`);
    setText(this.equal.value, now.both ? percent(now.equal / now.both) : "–");
    setText(this.equal.note, `${now.equal} of ${now.both} equal to the baseline’s`);
    const widths = {
      flops: now.flopsShare,
      locked: now.locked / trace.n,
      base: base / Math.max(base, sure),
      sure: sure / Math.max(base, sure),
      equal: now.both ? now.equal / now.both : 0,
    };
    for (const [name, width] of Object.entries(widths))
      this.bars[name].style.transform = `scaleX(${Math.min(1, width || 0).toFixed(4)})`;
  }

  #clear() {
    for (const { value, note } of [this.flops, this.locked, this.time, this.equal]) {
      setText(value, "–");
      setText(note, "\u00a0");
    }
    for (const node of Object.values(this.bars)) node.style.transform = "scaleX(0)";
  }
}
