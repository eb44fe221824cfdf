// Two numbers in the first screen: the work so far beside the baseline's, and how many choices leaving rows out has changed.

import { h, percent, setText } from "../dom.js";
import { uncompared } from "./gauges.js";

const CHANGED = "Choices that would have been another token, had their step computed every row";

/** The FLOPs of the lane that has the most to do, were every position computed: of a live run by its steps so far. */
export function mostWork(trace) {
  const { lanes } = trace;
  const { live } = trace.race;
  const works = lanes.map((lane) => {
    const soFar = lane.at(lane.count - 1)?.totalBaseline ?? 0;
    return live ? (soFar / Math.max(1, lane.count)) * lane.most : soFar;
  });
  return Math.max(1, ...works);
}

/** Makes room in a node for a number of each lane; of several each says by its colour and its name whose it is. */
function parts(node, lanes, classOf) {
  const made = lanes.map(() => h("span", "–"));
  const told = (lane, i) =>
    h(`span.sl-number-lane.${classOf(lane)}`, { title: lane.name }, h("span.sl-hidden", `${lane.name}: `), made[i]);
  node.replaceChildren(...(lanes.length > 1 ? lanes.map(told) : made));
  return made;
}

export class Numbers {
  constructor() {
    this.rows = [];
    this.bars = h("div.sl-work-bars", { "aria-hidden": "true" });
    this.share = h("strong.sl-number", "–");
    this.changed = h("strong.sl-number", "–");
    this.of = h("span.sl-number-of");
    const wide = (text) => h("span.sl-desk-only", text);
    const work = h("p.sl-work", "Work ", wide("so far "), this.share);
    const parts = ["Choices changed ", wide("by skipping "), this.changed, this.of];
    const changed = h("p.sl-changed", { title: CHANGED }, parts);
    this.node = h("section.sl-numbers", { "aria-label": "Numbers" }, work, this.bars, changed);
  }

  load({ lanes, reference, others }) {
    const classOf = (lane) => `sl-lane-${lanes.indexOf(lane) + 1}`;
    const bar = (lane) => ({ lane, bar: h(`span.sl-work-bar.${classOf(lane)}`) });
    this.rows = [...new Set([reference, ...others])].map(bar);
    this.bars.replaceChildren(...this.rows.map(({ bar }) => bar));
    this.shares = parts(this.share, others, classOf);
    this.changes = parts(this.changed, others, classOf);
  }

  draw(trace, step) {
    const whole = mostWork(trace);
    for (const { lane, bar } of this.rows) {
      const done = lane.at(trace.race.reached(lane, step))?.totalFlops ?? 0;
      bar.style.transform = `scaleX(${Math.min(1, done / whole).toFixed(4)})`;
    }
    const others = trace.others.map((lane) => trace.totals(lane, step));
    others.forEach((now, i) => {
      setText(this.shares[i], now ? percent(now.flopsShare) : "–");
      setText(this.changes[i], now?.damage ? String(now.damage.changed) : "–");
    });
    const [one] = others;
    const compared = others.every((now) => !now || now.damage);
    if (!compared) setText(this.of, ` ${uncompared(trace)}`);
    else setText(this.of, others.length === 1 && one?.damage ? ` of ${one.damage.commits}` : "");
  }
}
