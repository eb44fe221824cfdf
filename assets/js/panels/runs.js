// This visitor's runs: a table with a row for each lane and how its text begins; show a run again, put its settings into the form, pick up to
// four lanes to compare. Settings that differ from the usual stand out. Sorted by a column, the rows leave their runs.

import { h } from "../dom.js";
import { choiceFacts, facts } from "../trace/described.js";
import { everything, promptOf, results, textOf } from "../trace/results.js";
import { clocked } from "../trace/timing.js";
import { MOST_LANES, Trace } from "../trace/trace.js";
import { term } from "./term.js";

const HINT = `Runs of this visit stay in this page until you close it. Pick 2 to ${MOST_LANES} lanes, of one run or of several, to compare them. Settings that most of them do not share are marked.`;
const EXCERPT = 90; // characters
const NUMBERS = [
  "Steps",
  "Share of all FLOPs",
  "Active ratio",
  "Time",
  "Speed",
  "Words changed",
  "Text, compared with the reference",
];
const HEADS = ["Pick", "Run", "Lane", "Settings", ...NUMBERS];
const SORTED_BY = { Run: ({ entry }) => entry.number, Lane: ({ lane }) => lane.name };
for (const name of NUMBERS)
  SORTED_BY[name] = ({ entry: { trace }, lane }) => results(trace, lane).find(([own]) => own === name)?.[2] ?? NaN;

const EXPLAINED = {
  "Share of all FLOPs": "FLOPs",
  "Active ratio": "active ratio",
  "Words changed": "commit error",
};

const CALLED = { live: "your own" }; // where a run came from

const cutTo = (text, most) => (text.length > most ? `${text.slice(0, most).trimEnd()}\u00a0…` : text);

/** What most lanes have of each setting: a map from its name to {value, varied}; among equals the first seen. */
export function usual(decoders) {
  const counts = new Map();
  for (const decoder of decoders)
    for (const [name, value] of facts(decoder)) {
      const values = counts.get(name) ?? counts.set(name, new Map()).get(name);
      values.set(value, (values.get(value) ?? 0) + 1);
    }
  const most = (values) => [...values].reduce((best, each) => (each[1] > best[1] ? each : best))[0];
  return new Map([...counts].map(([name, values]) => [name, { value: most(values), varied: values.size > 1 }]));
}

/** [[text, stands out], ...]: the settings of a lane's own rules, and those of all others that are not alike in all runs. */
export function told(decoder, common) {
  const own = new Set(choiceFacts(decoder).map(([name]) => name));
  const named = (name) => name !== "Computes" && ((own.has(name) && name !== "Writes") || common.get(name)?.varied);
  return facts(decoder)
    .filter(([name]) => named(name))
    .map(([name, value]) => [`${name} ${value}`, value !== common.get(name)?.value]);
}

/** Rows in the order of a column; what has no value comes last. */
export function inOrder(rows, name, falling) {
  const key = SORTED_BY[name];
  const compare = (a, b) => {
    if (typeof a === "string") return a.localeCompare(b);
    return a === b ? 0 : a - b;
  };
  return rows.toSorted((x, y) => {
    const [a, b] = [key(x), key(y)];
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
    return falling ? compare(b, a) : compare(a, b);
  });
}

export class Runs {
  /** onUse(trace) puts a run's settings into the form; null where there is none. */
  constructor(stage, onUse) {
    Object.assign(this, { stage, onUse, picked: [], sort: null, falling: false });
    this.body = h("div.sl-table-box", { tabindex: 0, role: "region", "aria-label": "Runs table" });
    const compare = { disabled: true, onclick: () => this.#compare() };
    this.compareButton = h("button.sl-small", compare, "Compare what is picked");
    this.comparison = h("div.sl-comparison", { "aria-live": "polite" });
    this.node = h("div.sl-runs", h("p.sl-hint", HINT), this.body, this.compareButton, this.comparison);
  }

  /** There is another run, or one has got another lane or more steps. */
  draw() {
    const { entries } = this.stage.runs;
    this.picked = this.picked.filter(({ entry }) => entries.includes(entry));
    const controls = () => [...this.body.querySelectorAll("button, input")];
    const focused = controls().indexOf(document.activeElement);
    const rows = entries.flatMap((entry) => entry.trace.lanes.map((lane) => ({ entry, lane })));
    this.common = usual(rows.map(({ lane }) => lane.decoder));
    const sorted = this.sort && inOrder(rows, this.sort, this.falling).map((row) => this.#row(row, true));
    const bodies = sorted ? [h("tbody", sorted)] : entries.map((entry) => h("tbody", this.#group(entry)));
    const heads = HEADS.map((name) => this.#head(name));
    this.body.replaceChildren(h("table", h("thead", h("tr", heads)), bodies));
    if (focused >= 0) controls()[focused]?.focus(); // drawn anew under the visitor's hands
    this.compareButton.disabled = this.picked.length < 2;
  }

  #head(name) {
    if (!SORTED_BY[name]) return h("th", { scope: "col" }, name);
    const now = this.sort === name ? this.falling : null;
    const [order, arrow] = now === null ? [undefined, "↕"] : [now ? "descending" : "ascending", now ? "▼" : "▲"];
    const sorts = { title: "Sort by this column", onclick: () => this.#sortBy(name) };
    const button = h("button.sl-sort", sorts, name, h("span", { "aria-hidden": "true" }, ` ${arrow}`));
    const what = EXPLAINED[name] && [" ", term(EXPLAINED[name], "?")];
    return h("th", { scope: "col", "aria-sort": order }, button, what ?? []);
  }

  /** Rising, falling, then grouped by run again. */
  #sortBy(name) {
    if (this.sort !== name) Object.assign(this, { sort: name, falling: false });
    else if (!this.falling) this.falling = true;
    else this.sort = null;
    this.draw();
  }

  #group(entry) {
    const { trace } = entry;
    const prompt = h("td", { colspan: HEADS.length - 2 }, cutTo(promptOf(trace), EXCERPT));
    const first = h("tr.sl-run-prompt", h("td"), this.#run(entry, trace.lanes.length + 1), prompt);
    return [first, ...trace.lanes.map((lane) => this.#row({ entry, lane }, false))];
  }

  /** Which run it is, and what can be done with it. */
  #run({ trace, number, source }, rowspan) {
    const button = (text, label, action) => h("button.sl-small", { "aria-label": label, onclick: action }, text);
    return h(
      "td.sl-run",
      { rowspan },
      `${number} (${CALLED[source] ?? source})`,
      button("Show", `Show run ${number}`, () => this.stage.reveal(trace)),
      this.onUse && button("Use these settings", `Use these settings, of run ${number}`, () => this.onUse(trace)),
    );
  }

  /** alone: in a sorted table, with what else stands once for its run. */
  #row({ entry, lane }, alone) {
    const { trace, number } = entry;
    const picked = this.picked.some((pick) => pick.entry === entry && pick.lane === lane);
    const pick = h("input", {
      type: "checkbox",
      "aria-label": `Pick ${lane.name} of run ${number}`,
      checked: picked,
      onchange: () => this.#pick(entry, lane),
    });
    const outcome = new Map(results(trace, lane));
    const text = cutTo(textOf(trace, lane, trace.count - 1), EXCERPT);
    return h(
      "tr",
      h("td", pick),
      alone ? this.#run(entry) : null,
      h("td.sl-run-lane", h("b", lane.name), h("p.sl-hint", { dir: "auto" }, text)),
      h("td", this.#settings(lane.decoder)),
      NUMBERS.map((name) => h("td", outcome.get(name) ?? "–")),
    );
  }

  #settings(decoder) {
    const item = ([text, outstanding]) => h("li", outstanding ? h("mark", text) : text);
    return h("ul.sl-run-settings", told(decoder, this.common).map(item));
  }

  #pick(entry, lane) {
    const at = this.picked.findIndex((pick) => pick.entry === entry && pick.lane === lane);
    if (at >= 0) this.picked.splice(at, 1);
    else this.picked = [...this.picked.slice(1 - MOST_LANES), { entry, lane }];
    this.draw();
  }

  #compare() {
    const sides = this.picked.map(({ entry, lane }) => ({ trace: entry.trace, lane, number: entry.number }));
    const runs = new Set(sides.map(({ number }) => number));
    for (const side of sides)
      side.name = runs.size > 1 ? `${side.lane.name}, run ${side.number}`.slice(0, 80) : side.lane.name;
    const alike = sides.every(({ trace }) => trace.like(sides[0].trace));
    const show = () => this.stage.reveal(Trace.of(sides), "Compared:");
    const together = h("button.sl-small", { onclick: show }, "Show them side by side");
    const why = "Their models, prompts or lengths differ, so their grids cannot be laid side by side.";
    const box = h("div.sl-table-box", { tabindex: 0, role: "region", "aria-label": "Comparison" });
    box.append(comparison(sides));
    this.comparison.replaceChildren(box, alike ? together : h("p.sl-hint", why));
    box.focus({ preventScroll: true });
    this.comparison.scrollIntoView({ block: "start" });
  }
}

/** A table of everything about some lanes, [{trace, lane, name}, ...], side by side; rows that differ are marked. */
export function comparison(sides) {
  const timed = clocked(sides.map(({ lane }) => lane));
  const lists = sides.map((side) => new Map(everything(side, timed.includes(side.lane))));
  const names = [...new Set(lists.flatMap((list) => [...list.keys()]))];
  const rows = names.map((name) => {
    const values = lists.map((list) => list.get(name) ?? "–");
    const unequal = new Set(values).size > 1;
    const cells = values.map((value) => h("td", value));
    return h(unequal ? "tr.sl-unequal" : "tr", h("th", { scope: "row" }, name), cells);
  });
  const heads = ["", ...sides.map(({ name }) => name)].map((name) => h("th", { scope: "col" }, name));
  return h("table", h("thead", h("tr", heads)), h("tbody", rows));
}
