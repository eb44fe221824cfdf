// One position at one step, in both runs: what it is, when it changed, and its five most likely tokens.

import { h, percent, scientific, setText } from "./dom.js";
import { LOCKED, STATES } from "./trace.js";

/** When a position was unmasked, as known after step t. */
function whenUnmasked(step, t) {
  if (step < 0) return "prompt";
  return step <= t ? `step ${step + 1}` : "not yet";
}

export class Inspector {
  /** fetchTop(position, step) -> Promise of {baseline: [[id, piece, p], ...], surelock: ...} or null, for traces that hold no likely tokens themselves. */
  constructor({ onPin, fetchTop }) {
    Object.assign(this, { onPin, fetchTop, asked: "", cell: -1 });
    this.title = h("h3", { class: "sl-inspector-title" }, "Inspector");
    this.pinButton = h(
      "button",
      { type: "button", class: "sl-small", hidden: true, onclick: () => this.onPin(this.cell) },
      "Pin",
    );
    this.hint = h(
      "p",
      { class: "sl-hint" },
      "Point at a cell, or focus a grid and use the arrow keys. Click or press Enter to pin a position: its KL joins the plot.",
    );
    this.columns = ["baseline", "surelock"].map((key) => {
      const facts = h("dl", { class: "sl-facts" });
      const bars = h("ol", { class: "sl-top" });
      const heading = h("h4", {});
      return {
        key,
        facts,
        bars,
        heading,
        node: h("div", { class: `sl-inspector-column sl-of-${key}` }, heading, facts, bars),
      };
    });
    this.pinList = h("div", { class: "sl-pins" });
    this.body = h(
      "div",
      { class: "sl-inspector-columns", hidden: true },
      this.columns.map(({ node }) => node),
    );
    this.node = h(
      "section",
      { class: "sl-inspector", "aria-label": "Inspector" },
      h("div", { class: "sl-inspector-head" }, this.title, this.pinButton),
      this.pinList,
      this.hint,
      this.body,
    );
  }

  load(trace, names) {
    Object.assign(this, { trace, asked: "" });
    this.columns.forEach(({ heading }, i) => {
      setText(heading, names[i]);
    });
  }

  draw(cell, step, pins) {
    this.cell = cell;
    const shown = this.trace && cell >= 0 && cell < this.trace.n;
    this.body.hidden = this.pinButton.hidden = !shown;
    this.hint.hidden = shown;
    if (!shown) return setText(this.title, "Inspector");
    setText(this.title, `Position ${cell}${cell < this.trace.promptLength ? " (prompt)" : ""}`);
    setText(this.pinButton, pins.has(cell) ? "Unpin" : "Pin");
    for (const column of this.columns) this.#facts(column, cell, step);
    this.#tops(cell, step);
  }

  /** One line about a cell, for the tooltip and screen readers. */
  describe(lane, cell, step) {
    const t = lane.clamp(step);
    const state = lane.row(t)[cell];
    if (lane.unmaskStep[cell] > t) return `Position ${cell}: masked`;
    const lock = lane.lockStep(cell, t);
    return `Position ${cell}: ${this.trace.pieces.name(lane.token[cell])}, ${STATES[state]}${lock >= 0 ? ` since step ${lock + 1}` : ""}`;
  }

  #facts({ key, facts }, cell, step) {
    const lane = this.trace[key];
    const t = lane.clamp(step);
    const seen = lane.lastComputed(cell, t);
    const unmasked = lane.unmaskStep[cell];
    const lock = lane.lockStep(cell, t);
    const token = unmasked <= t ? this.trace.pieces.name(lane.token[cell]) : "masked";
    const at = seen * lane.n + cell;
    const rows = [
      ["Token", token],
      ["State", STATES[lane.row(t)[cell]]],
      ["Unmasked", whenUnmasked(unmasked, t)],
      ["Locked", lock >= 0 ? `step ${lock + 1}` : "no"],
      ["Confidence", seen >= 0 ? percent(lane.confidence[at], 1) : "–"],
      ["KL", seen >= 0 ? scientific(lane.kl[at]) : "–"],
    ];
    if (facts.childElementCount !== 2 * rows.length)
      facts.replaceChildren(...rows.flatMap(([name]) => [h("dt", {}, name), h("dd", {})]));
    rows.forEach(([, value], i) => {
      setText(facts.children[2 * i + 1], value);
    });
    facts.children[1].title = token;
    facts.classList.toggle("sl-is-locked", lane.row(t)[cell] === LOCKED);
  }

  #tops(cell, step) {
    const own = this.columns.map(({ key }) => this.trace[key].top(cell, step));
    if (own.some((list) => list !== null) || !this.fetchTop) {
      this.columns.forEach((column, i) => {
        const named = own[i]?.map(([id, p]) => [this.trace.pieces.name(id), p]);
        this.#bars(column, named);
      });
      return;
    }
    const wanted = `${cell}/${step}`;
    if (this.asked === wanted) return;
    this.asked = wanted;
    clearTimeout(this.timer);
    // a sweep of the pointer asks for nothing on its way
    this.timer = setTimeout(async () => {
      const found = await this.fetchTop(cell, step);
      if (this.asked !== wanted) return;
      const { pieces } = this.trace;
      for (const column of this.columns) {
        const list = found?.[column.key];
        for (const [id, piece] of list ?? []) if (piece !== null) pieces.add({ [id]: piece });
        const named = list?.map(([id, , p]) => [pieces.name(id), p]);
        this.#bars(column, named);
      }
    }, 120);
  }

  #bars({ bars }, list) {
    const rows = list?.length ? list : [];
    if (!rows.length)
      return bars.replaceChildren(
        h("li", { class: "sl-top-none" }, list ? "not computed yet" : "likely tokens are not kept for this run"),
      );
    bars.replaceChildren(
      ...rows.map(([name, p]) => {
        const fill = h("span", { class: "sl-top-bar" });
        fill.style.width = `${(100 * p).toFixed(1)}%`;
        return h(
          "li",
          {},
          fill,
          h("bdi", { class: "sl-top-name", dir: "ltr", title: name }, name),
          h("span", { class: "sl-top-p" }, percent(p, p < 0.1 ? 1 : 0)),
        );
      }),
    );
  }

  drawPins(pins) {
    this.pinList.replaceChildren(
      ...[...pins].map(([cell, pin]) =>
        h(
          "button",
          {
            type: "button",
            class: `sl-pin sl-pin-${pin + 1}`,
            "aria-label": `Unpin position ${cell}`,
            title: "Unpin",
            onclick: () => this.onPin(cell),
          },
          `${pin + 1}: position ${cell} ✕`,
        ),
      ),
    );
  }
}
