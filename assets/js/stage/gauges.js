// The gauges: four large numbers for every lane, compared with the reference.

import { term } from "../below/term.js";
import { count, h, percent, sameText, seconds, setText, short } from "../dom.js";
import { uncompared } from "./numbers.js";

/**
 * The gauges: a label, and a function from a lane's totals to {value, note, bar}; bar: the bar's length from 0 to 1.
 */
export const GAUGES = [
  {
    key: "flops",
    label: "Computation so far",
    term: "FLOPs",
    read: ({ flopsShare: bar, spared }, { name, single }) => {
      const early = spared ? `; its text was over ${count(spared, "step")} early` : "";
      const note = (single ? "of computing every token" : `of the FLOPs of “${name}”`) + early;
      return { value: percent(bar), note, bar };
    },
  },
  {
    key: "locked",
    label: "Tokens locked",
    term: "locked",
    read: ({ locked, takenBack }, { n }) => {
      const more = takenBack ? `taken back: ${takenBack}` : `${n - locked} are not locked`;
      return { value: String(locked), note: `of ${n} tokens; ${more}`, bar: locked / n };
    },
  },
  { key: "time", label: "Measured time", read: measured },
  {
    key: "damage",
    label: "Choices changed by skipping rows",
    term: "Choices changed",
    read: ({ damage, same }, { single, uncompared: why }) => ({
      value: damage ? String(damage.changed) : "–",
      note: [damage ? damageText(damage) : why, single ? "" : sameText(same)].filter(Boolean).join("; "),
      bar: damage?.commits ? damage.changed / damage.commits : 0,
    }),
  },
];

/** The gauge of the time. The bar is proportional to the time beside it. */
export function measured(now, { single, slowest }) {
  if (!now.timed) return { value: "–", note: "not timed together", bar: 0 };
  const gauge = { value: seconds(now.seconds), bar: now.seconds / slowest };
  if (single) return { ...gauge, note: "on this machine" };
  const against = `against ${seconds(now.against)}`;
  if (now.speed === null) return { ...gauge, note: `${against}: no difference to be seen here, one run each` };
  return { ...gauge, note: `${against}: ${now.speed.toFixed(2)} times as fast` };
}

/** The note on the commit error and the mean regret. */
function damageText(damage) {
  const text = `of ${damage.commits}, commit error ${short(damage.mean)} nats`;
  if (damage.regret === null) return text;
  const meanRegret = damage.regret / Math.max(1, damage.commits);
  return `${text}, regret ${short(meanRegret)}`;
}

/** The table of all gauges. */
export class Gauges {
  constructor() {
    this.list = h("div.sl-gauge-list");
    this.node = h("section.sl-gauges", { "aria-label": "Gauges", "data-terms": true }, this.list);
    this.gauges = [];
  }

  load(trace) {
    this.gauges = GAUGES.map((gauge) => ({
      ...gauge,
      rows: trace.others.map((lane) => this.#row(trace, lane, gauge.key)),
    }));
    const gaugeNodes = this.gauges.map(({ key, label, term: name, rows }, i) => {
      const nodes = rows.map(({ node }) => node);
      const many = rows.length > 1 ? ".sl-gauge-many" : "";
      const heading = name ? term(name, label, { stop: i === 0 }) : label;
      return h(`div.sl-gauge.sl-gauge-${key}${many}`, h("div.sl-gauge-label", heading), nodes);
    });
    this.list.replaceChildren(...gaugeNodes);
  }

  #row(trace, lane, key) {
    const value = h("div.sl-gauge-value", "–");
    const note = h("div.sl-gauge-note", "\u00a0");
    const bar = h(`span.sl-bar.sl-bar-${key}`);
    const base = key === "time" && lane !== trace.reference ? h("span.sl-bar.sl-bar-reference") : null;
    const bars = h("div.sl-gauge-bars", { "aria-hidden": "true" }, base, bar);
    const selector = `div.sl-gauge-row.sl-lane-${trace.colourOf(lane) + 1}`;
    const node = h(selector, h("div.sl-gauge-name", lane.name), value, bars, note);
    return { lane, node, value, note, bar, base };
  }

  draw(trace, step) {
    // Computed once per lane, since it compares texts.
    const totals = trace.lanes.map((lane) => trace.totals(lane, step));
    const base = totals[trace.lanes.indexOf(trace.reference)];
    const slowest = Math.max(1e-9, ...totals.map((now) => (now?.timed ? now.seconds : 0)));
    const beside = { name: trace.reference.name, single: trace.lanes.length === 1, uncompared: uncompared(trace) };
    const context = { n: trace.n, slowest, ...beside };
    for (const { rows, read } of this.gauges)
      for (const row of rows) {
        const now = totals[trace.lanes.indexOf(row.lane)];
        const { value, note, bar } = now && base ? read(now, context) : { value: "–", note: "\u00a0", bar: 0 };
        setText(row.value, value);
        setText(row.note, note);
        if (row.node.title !== note) row.node.title = note; // with several rows there is no room for the note
        row.bar.style.transform = `scaleX(${Math.min(1, bar || 0).toFixed(4)})`;
        if (row.base) row.base.style.transform = `scaleX(${(bar && base?.seconds) / slowest})`;
      }
  }
}
