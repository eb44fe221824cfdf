// Two numbers in the first screen: the work so far beside the baseline's, and how many words leaving rows out has changed.

import { h, percent, setText } from "../dom.js";
import { uncompared } from "./gauges.js";

export class Numbers {
  constructor() {
    this.rows = [];
    this.bars = h("div", { class: "sl-work-bars", "aria-hidden": "true" });
    this.share = h("strong", { class: "sl-number" }, "–");
    this.changed = h("strong", { class: "sl-number" }, "–");
    this.of = h("span", { class: "sl-number-of" });
    this.node = h(
      "section",
      { class: "sl-numbers", "aria-label": "Numbers" },
      h("p", { class: "sl-work" }, "Work ", h("span", { class: "sl-desk-only" }, "so far "), this.share),
      this.bars,
      h("p", { class: "sl-changed" }, "Words changed ", this.changed, this.of),
    );
  }

  /** A bar for each lane, the reference's first. */
  load({ lanes, reference }) {
    this.rows = [reference, ...lanes.filter((lane) => lane !== reference)].map((lane) => ({
      lane,
      bar: h("span", { class: `sl-work-bar sl-lane-${lanes.indexOf(lane) + 1}` }),
    }));
    this.bars.replaceChildren(...this.rows.map(({ bar }) => bar));
  }

  draw(trace, step) {
    const { reference } = trace;
    const whole = reference.at(reference.count - 1)?.totalBaseline || 1;
    for (const { lane, bar } of this.rows) {
      const done = lane.at(trace.reached(lane, step))?.totalFlops ?? 0;
      bar.style.transform = `scaleX(${Math.min(1, done / whole).toFixed(4)})`;
    }
    const others = this.rows.slice(this.rows.length > 1 ? 1 : 0).map(({ lane }) => trace.totals(lane, step));
    const said = (read) => others.map((now) => (now ? read(now) : "–")).join(" · ");
    setText(
      this.share,
      said(({ flopsShare }) => percent(flopsShare)),
    );
    setText(
      this.changed,
      said(({ damage }) => (damage ? String(damage.changed) : "–")),
    );
    const [one] = others;
    const compared = others.every((now) => !now || now.damage);
    if (!compared) setText(this.of, ` ${uncompared(trace)}`);
    else setText(this.of, others.length === 1 && one?.damage ? ` of ${one.damage.commits}` : "");
  }
}
