// The inspector: one position at one step in every lane, with its state, its changes, and its five likeliest tokens.

import { h, percent, scientific, setText } from "../dom.js";
import { page } from "../run/state.js";
import { eventText } from "../trace/described.js";
import { pinName } from "../trace/prose.js";
import { STATES } from "../trace/states.js";

const UNSEEN = "not computed yet";
const LISTED = 4; // the most positions that `lookedAt` lists
const TOP_MS = 120; // likely tokens are fetched after this time, so that a moving pointer fetches none
const ATTENDED_MS = 150; // the same for the attention of a choice

/** A probability, no finer than the record's 255 steps. */
const likely = (p) => percent(p, p < 0.1 ? 1 : 0);

/** The events of a person at a position up to step t, in words. */
function byHand(lane, cell, t) {
  const events = (lane.decoder.events ?? []).filter(({ position, step }) => position === cell && step <= t);
  const textOf = (event) => eventText(event).replace(/^position \d+ /, "");
  return events.map((event) => `${textOf(event)} at step ${event.step + 1}`).join(", ");
}

/**
 * A sentence about the words that a choice attended to most, and whether they were locked.
 * list: [[position, share], ...] of positions that were written before, from a dense forward pass of the step's tokens.
 */
export function lookedAt(trace, lane, t, list) {
  const words = list.slice(0, LISTED).map(([p, share]) => {
    const state = lane.isLocked(p, t - 1) ? " (locked)" : "";
    return `${trace.word(lane.token(p, t))} ${percent(share)}${state}`;
  });
  if (!words.length) return "";
  return `Among the tokens already written, this prediction attended most to ${words.join(", ")}.`;
}

/** The facts, likely tokens and pins in the drawer. */
export class Inspector {
  /**
   * pin(cell): pins a cell, or unpins it.
   * fetchTop(lane, position, step): a promise of [[id, piece, p], ...] or null; called for lanes without likely tokens.
   * fetchAttended(trace, lane, position, step): a promise of the list that `lookedAt` takes, or null.
   */
  constructor({ pin, fetchTop, fetchAttended }) {
    Object.assign(this, { pin, fetchTop, fetchAttended, wanted: "", cell: -1, step: -1, columns: [], pinned: [] });
    this.title = h("h3.sl-inspector-title");
    this.pinButton = h("button.sl-small", { onclick: () => this.pin(this.cell) }, "Pin");
    this.note = h("p.sl-note", { role: "status" });
    this.pinList = h("div.sl-pins");
    this.body = h("div.sl-inspector-columns");
  }

  load(trace) {
    Object.assign(this, { trace, wanted: "" });
    this.columns = trace.lanes.map((lane) => {
      const facts = h("dl.sl-facts");
      const bars = h("ol.sl-top");
      const attended = h("p.sl-attended");
      const stands = h("span.sl-inspector-step");
      const head = h("h4", lane.name, stands);
      const node = h(`div.sl-inspector-column.sl-lane-${trace.colourOf(lane) + 1}`, head, facts, bars, attended);
      return { lane, stands, facts, bars, attended, node };
    });
    this.body.replaceChildren(...this.columns.map(({ node }) => node));
  }

  /** Shows a sentence about the last request for this cell, until another cell is inspected. */
  say(text) {
    setText(this.note, text);
  }

  turnTo(cell) {
    if (cell !== this.cell) this.say("");
    this.cell = cell;
  }

  /** Shows the position at the cursor's step. The lane's step is written beside its name. */
  draw(step) {
    const { cell } = this;
    setText(this.title, `Position ${cell}${this.trace.given[cell] ? " (prompt)" : ""}`);
    this.#namePins(step);
    setText(this.pinButton, page.now.pins.has(cell) ? "Unpin" : "Pin");
    for (const column of this.columns) {
      const t = this.trace.race.reached(column.lane, step);
      setText(column.stands, t < 0 ? "before its first step" : `after its step ${t + 1}`);
      this.#facts(column, cell, t);
      this.#attended(column, cell, t);
    }
    this.#tops(cell, step);
  }

  #facts({ lane, facts }, cell, t) {
    const seen = lane.lastComputed(cell, t);
    const unmasked = lane.unmaskStep(cell, t);
    const lock = lane.lockStep(cell, t);
    const id = lane.token(cell, t);
    const token = id < 0 ? "masked" : this.trace.pieces.name(id);
    const at = seen * lane.n + cell;
    const state = lane.row(t)[cell];
    const rows = [
      ["Token", token],
      ["State", STATES[state]],
      ["Written", whenWritten(unmasked)],
      ["Locked", lock >= 0 ? `step ${lock + 1}` : "no"],
      ["Confidence", seen >= 0 ? likely(lane.confidence[at]) : UNSEEN],
      ["KL", seen >= 0 ? scientific(lane.kl[at]) : UNSEEN],
    ];
    const hand = byHand(lane, cell, t);
    if (hand) rows.push(["By hand", hand]);
    const back = lane.takenBack(cell, t);
    if (back.length) rows.push(["Taken back", takenBack(this.trace, back)]);
    if (facts.childElementCount !== 2 * rows.length) facts.replaceChildren(...rows.flatMap(() => [h("dt"), h("dd")]));
    rows.forEach(([name, value], i) => {
      setText(facts.children[2 * i], name);
      setText(facts.children[2 * i + 1], value);
      facts.children[2 * i + 1].title = value;
    });
  }

  /** If the lane's step t writes the position, shows after a moment the positions that the choice attended to. */
  #attended({ lane, attended: line }, cell, t) {
    const { trace } = this;
    const wanted = this.fetchAttended && t >= 0 && lane.steps[t].unmasked.includes(cell) ? `${cell}/${t}` : "";
    if (line.dataset.wanted === wanted) return;
    line.dataset.wanted = wanted;
    setText(line, "");
    if (!wanted) return;
    setTimeout(async () => {
      if (line.dataset.wanted !== wanted) return; // the pointer is at another cell
      const list = await this.fetchAttended(trace, lane, cell, t);
      if (list && line.dataset.wanted === wanted) setText(line, lookedAt(trace, lane, t, list));
    }, ATTENDED_MS);
  }

  /** Shows likely tokens: at once if the lanes have them, else after they are fetched. */
  #tops(cell, step) {
    const { pieces, race } = this.trace;
    const named = (list) => list?.map(([id, p]) => [pieces.name(id), p]);
    const places = this.columns.map((column) => ({ ...column, t: race.reached(column.lane, step) }));
    const missing = places.filter(({ lane, bars, t }) => {
      const list = t < 0 ? [] : lane.top(cell, t);
      if (list !== null || !this.fetchTop) this.#bars(bars, named(list));
      return list === null;
    });
    const wanted = [cell, ...places.map(({ t }) => t)].join("/");
    if (!missing.length || !this.fetchTop || this.wanted === wanted) return;
    this.wanted = wanted;
    clearTimeout(this.timer);
    this.timer = setTimeout(async () => {
      const tops = await Promise.all(missing.map(({ lane, t }) => this.fetchTop(lane, cell, t)));
      if (this.wanted !== wanted) return;
      missing.forEach(({ bars }, i) => {
        const top = tops[i];
        for (const [id, piece] of top ?? []) if (piece !== null) pieces.add({ [id]: piece });
        this.#bars(bars, named(top?.map(([id, , p]) => [id, p])));
      });
    }, TOP_MS);
  }

  #bars(bars, list) {
    const rows = list?.length ? list : [];
    if (!rows.length) {
      const why = list ? UNSEEN : "likely tokens are not kept for this run";
      return bars.replaceChildren(h("li.sl-top-none", why));
    }
    const bar = ([name, p]) => {
      const fill = h("span.sl-top-bar");
      fill.style.width = `${(100 * p).toFixed(1)}%`;
      const word = h("bdi.sl-top-name", { dir: "ltr", title: name }, name);
      return h("li", fill, word, h("span.sl-top-p", likely(p)));
    };
    bars.replaceChildren(...rows.map(bar));
  }

  drawPins() {
    this.say("");
    this.pinned = [...page.now.pins].map(([cell, pin]) => {
      const onclick = () => this.pin(cell);
      const button = h(`button.sl-pin.sl-pin-${pin + 1}`, { title: "Unpin", onclick });
      return { cell, pin, button };
    });
    this.pinList.replaceChildren(...this.pinned.map(({ button }) => button));
    this.#namePins(this.step);
  }

  /** Names the pins by their present tokens, so that a pin at a masked position does not reveal its word. */
  #namePins(step) {
    this.step = step;
    for (const { cell, pin, button } of this.pinned) {
      const name = pinName(this.trace, cell, { at: (lane) => this.trace.race.reached(lane, step) });
      setText(button, `${pin + 1}: ${name} ✕`);
      button.setAttribute("aria-label", `Unpin ${name}`);
    }
  }
}

/**
 * The last token that was taken back, and the number of such tokens if there are several. list: see `Lane.takenBack`.
 */
function takenBack(trace, list) {
  const [step, token] = list.at(-1);
  const times = list.length > 1 ? `${list.length} times, last ` : "";
  return `${times}${trace.word(token)} at step ${step + 1}`;
}

function whenWritten(step) {
  if (Number.isNaN(step)) return "not yet";
  return step < 0 ? "prompt" : `step ${step + 1}`;
}
