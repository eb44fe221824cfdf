// This visitor's runs: a table, show one again, pick two to compare.

import { h, percent, seconds } from "./dom.js";

const SETTINGS = [
  ["gen_length", "Generated"],
  ["steps", "Steps"],
  ["block_length", "Block"],
  ["temperature", "Temperature"],
  ["cfg_scale", "Guidance"],
  ["remasking", "Remasking"],
  ["no_repeat_ngram_size", "Phrase not said again"],
  ["seed", "Seed"],
];
const LOCKS = [
  ["epsilon", "ε"],
  ["percentile", "Percentile"],
  ["visible_steps", "Wait until seen"],
];

function epsilonText(e) {
  if (e === null || e === undefined) return "–";
  return typeof e === "number" && e < 0 ? "never" : String(e);
}

/** [[name, value], ...] of everything a reader may compare. */
function facts({ trace }) {
  const { settings, lock, model, prompt } = trace.header;
  const now = trace.totals(trace.count - 1);
  const [base, sure] = now.seconds;
  return [
    ["Model", model.name],
    ["Prompt", prompt ?? `${trace.promptLength} token ids`],
    ...SETTINGS.map(([key, name]) => [name, String(settings[key] ?? "–")]),
    ...LOCKS.map(([key, name]) => [name, key === "epsilon" ? epsilonText(lock?.[key]) : String(lock?.[key] ?? "–")]),
    ["FLOPs of the baseline’s", percent(now.flopsShare, 1)],
    ["Active ratio", percent(now.activeRatio, 1)],
    ["Time", `${seconds(sure)} against ${seconds(base)}`],
    ["Speed", `${(base / sure).toFixed(2)}×`],
    ["Same tokens", `${now.equal} of ${now.both}`],
  ];
}

export class Runs {
  constructor({ onShow, onCompare }) {
    Object.assign(this, { onShow, onCompare, entries: [], picked: [] });
    this.body = h("tbody");
    this.compareButton = h(
      "button",
      { type: "button", class: "sl-small", disabled: true, onclick: () => this.#compare() },
      "Compare the two picked",
    );
    this.comparison = h("div", { class: "sl-comparison", "aria-live": "polite" });
    const heads = ["Pick", "Run", "Prompt", "Settings", "FLOPs", "Active ratio", "Time", "Speed", "Same tokens", ""];
    this.node = h(
      "div",
      { class: "sl-runs" },
      h("p", { class: "sl-hint" }, "Runs of this visit stay in this page until you close it. Pick two to compare."),
      h(
        "div",
        { class: "sl-table-box", tabindex: 0, role: "region", "aria-label": "Runs table" },
        h(
          "table",
          {},
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              heads.map((name) => h("th", { scope: "col" }, name || h("span", { class: "sl-hidden" }, "Show"))),
            ),
          ),
          this.body,
        ),
      ),
      this.compareButton,
      this.comparison,
    );
  }

  add(trace, source) {
    const entry = { trace, source, number: this.entries.length + 1 };
    this.entries.push(entry);
    if (this.entries.length > 12) this.entries.shift();
    this.draw();
  }

  draw() {
    this.body.replaceChildren(...this.entries.map((entry) => this.#row(entry)));
    this.compareButton.disabled = this.picked.length !== 2;
  }

  #row(entry) {
    const { trace, source, number } = entry;
    const now = trace.totals(trace.count - 1);
    const { settings, lock, prompt } = trace.header;
    const [base, sure] = now.seconds;
    const pick = h("input", {
      type: "checkbox",
      "aria-label": `Pick run ${number}`,
      checked: this.picked.includes(entry),
      onchange: () => this.#pick(entry),
    });
    const summary = `${settings.gen_length} tokens, ${trace.steps} steps, ε ${epsilonText(lock?.epsilon)}, m ${lock?.percentile ?? "off"}${settings.temperature ? `, T ${settings.temperature}` : ""}`;
    const short = (prompt ?? `${trace.promptLength} token ids`).slice(0, 60);
    const cells = [
      pick,
      `${number} (${source})`,
      short,
      summary,
      percent(now.flopsShare, 1),
      percent(now.activeRatio, 1),
      `${seconds(sure)} / ${seconds(base)}`,
      `${(base / sure).toFixed(2)}×`,
      `${now.equal} / ${now.both}`,
      h(
        "button",
        { type: "button", class: "sl-small", "aria-label": `Show run ${number}`, onclick: () => this.onShow(trace) },
        "Show",
      ),
    ];
    return h(
      "tr",
      {},
      cells.map((cell) => h("td", {}, cell)),
    );
  }

  #pick(entry) {
    this.picked = this.picked.includes(entry)
      ? this.picked.filter((other) => other !== entry)
      : [...this.picked.slice(-1), entry];
    this.draw();
  }

  #compare() {
    const [a, b] = this.picked;
    const [left, right] = [facts(a), facts(b)];
    const rows = left.map(([name, value], i) =>
      h(
        "tr",
        { class: value !== right[i][1] ? "sl-unequal" : undefined },
        h("th", { scope: "row" }, name),
        h("td", {}, value),
        h("td", {}, right[i][1]),
      ),
    );
    const same = a.trace.n === b.trace.n && a.trace.promptLength === b.trace.promptLength;
    this.comparison.replaceChildren(
      h(
        "div",
        { class: "sl-table-box" },
        h(
          "table",
          {},
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              ["", `Run ${a.number}`, `Run ${b.number}`].map((name) => h("th", { scope: "col" }, name)),
            ),
          ),
          h("tbody", {}, rows),
        ),
      ),
      same
        ? h(
            "button",
            { type: "button", class: "sl-small", onclick: () => this.onCompare(a, b) },
            "Show their SureLock sides next to each other",
          )
        : h("p", { class: "sl-hint" }, "Their lengths differ, so their grids cannot be laid side by side."),
    );
  }
}
