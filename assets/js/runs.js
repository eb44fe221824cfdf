// This visitor's runs: a table with a row for each contestant, show a run again, pick up to four contestants to compare.

import { choiceText, facts, judgements } from "./described.js";
import { commitError, h, percent, sameText, seconds } from "./dom.js";
import { term } from "./glossary.js";
import { MOST_LANES } from "./trace.js";

const MOST_RUNS = 12;
const HEADS = [
  "Pick",
  "Run",
  "Contestant",
  "Settings",
  "FLOPs",
  "Active ratio",
  "Time",
  "Speed",
  "Choices changed",
  "Text",
  "",
];

/** A column's name, with what it means where that is a term. */
function headed(name) {
  if (name === "Choices changed") return term("commit error", name);
  if (name === "Active ratio") return term("active ratio", name);
  return name === "FLOPs" ? term(name) : name || h("span", { class: "sl-hidden" }, "Show");
}

/** What came of a lane: [[name, value], ...]. FLOPs are of computing every position; speed and tokens beside the reference. */
function results(trace, lane) {
  const now = trace.totals(lane, trace.count - 1);
  if (!now) return [];
  const alone = lane === trace.reference;
  return [
    ["Steps", String(now.steps)],
    ["FLOPs", percent(now.everyShare, 1)],
    ["Active ratio", percent(now.activeRatio, 1)],
    ["Time", seconds(now.seconds)],
    ["Speed", alone ? "–" : `${now.speed.toFixed(2)}×`],
    ["Choices changed", changed(now.damage)],
    ["Text", alone ? "–" : sameText(now.same)],
  ];
}

const changed = (damage) => (damage ? `${damage.changed} / ${damage.commits} (${commitError(damage)} nats)` : "–");

/** Everything a reader may compare of a lane. */
function everything({ trace, lane }) {
  const { model, prompt } = trace.header;
  const asked = prompt ?? `${trace.promptLength} token ids`;
  return [
    ["Model", model.name],
    ["Prompt", asked],
    ...facts(lane.contestant),
    ...results(trace, lane),
    ...judgements(lane),
  ];
}

export class Runs {
  constructor({ onShow, onCompare }) {
    Object.assign(this, { onShow, onCompare, entries: [], picked: [], numbered: 0 });
    this.body = h("div", { class: "sl-table-box", tabindex: 0, role: "region", "aria-label": "Runs table" });
    this.compareButton = h(
      "button",
      { type: "button", class: "sl-small", disabled: true, onclick: () => this.#compare() },
      "Compare what is picked",
    );
    this.comparison = h("div", { class: "sl-comparison", "aria-live": "polite" });
    this.node = h(
      "div",
      { class: "sl-runs" },
      h(
        "p",
        { class: "sl-hint" },
        `Runs of this visit stay in this page until you close it. Pick two to ${MOST_LANES} contestants, of one run or of several, to compare them.`,
      ),
      this.body,
      this.compareButton,
      this.comparison,
    );
  }

  add(trace, source) {
    this.numbered++;
    this.entries.push({ trace, source, number: this.numbered });
    if (this.entries.length > MOST_RUNS) this.entries.shift();
    this.picked = this.picked.filter(({ entry }) => this.entries.includes(entry));
    this.draw();
  }

  /** A trace has got another lane, or more steps. */
  draw() {
    const heads = HEADS.map((name) => h("th", { scope: "col" }, headed(name)));
    const bodies = this.entries.map((entry) => h("tbody", {}, this.#rows(entry)));
    this.body.replaceChildren(h("table", {}, h("thead", {}, h("tr", {}, heads)), bodies));
    this.compareButton.disabled = this.picked.length < 2;
  }

  #rows(entry) {
    const { trace, source, number } = entry;
    const prompt = (trace.header.prompt ?? `${trace.promptLength} token ids`).slice(0, 80);
    const show = h(
      "button",
      { type: "button", class: "sl-small", "aria-label": `Show run ${number}`, onclick: () => this.onShow(trace) },
      "Show",
    );
    const span = trace.lanes.length + 1;
    const first = h(
      "tr",
      { class: "sl-run-prompt" },
      h("td", {}),
      h("td", { rowspan: span }, `${number} (${source})`),
      h("td", { colspan: HEADS.length - 3 }, prompt),
      h("td", { rowspan: span }, show),
    );
    return [first, ...trace.lanes.map((lane) => this.#row(entry, lane))];
  }

  #row(entry, lane) {
    const { trace, number } = entry;
    const picked = this.picked.some((pick) => pick.entry === entry && pick.lane === lane);
    const pick = h("input", {
      type: "checkbox",
      "aria-label": `Pick ${lane.name} of run ${number}`,
      checked: picked,
      onchange: () => this.#pick(entry, lane),
    });
    const outcome = results(trace, lane)
      .slice(1)
      .map(([, value]) => h("td", {}, value));
    return h("tr", {}, h("td", {}, pick), h("td", {}, lane.name), h("td", {}, choiceText(lane.contestant)), outcome);
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
    const lists = sides.map((side) => new Map(everything(side)));
    const names = [...new Set(lists.flatMap((list) => [...list.keys()]))];
    const rows = names.map((name) => {
      const values = lists.map((list) => list.get(name) ?? "–");
      const unequal = new Set(values).size > 1;
      const cells = values.map((value) => h("td", {}, value));
      return h("tr", { class: unequal ? "sl-unequal" : undefined }, h("th", { scope: "row" }, name), cells);
    });
    const heads = ["", ...sides.map(({ name }) => name)].map((name) => h("th", { scope: "col" }, name));
    const table = h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows));
    const alike = sides.every(({ trace }) => trace.like(sides[0].trace));
    const together = h(
      "button",
      { type: "button", class: "sl-small", onclick: () => this.onCompare(sides) },
      "Show them beside each other",
    );
    const why = "Their models, prompts or lengths differ, so their grids cannot be laid side by side.";
    this.comparison.replaceChildren(
      h("div", { class: "sl-table-box" }, table),
      alike ? together : h("p", { class: "sl-hint" }, why),
    );
  }
}
