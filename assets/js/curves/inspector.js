// One position at one step, in every lane: what it is, when it changed, and its five most likely tokens.

import { h, percent, scientific, setText } from "../dom.js";
import { page } from "../run/state.js";
import { eventText } from "../trace/described.js";
import { pinName } from "../trace/prose.js";
import { STATES } from "../trace/states.js";

const UNSEEN = "not computed yet";
const LISTED = 4; // positions that a choice attended to
const TOP_MS = 120; // a sweep of the pointer asks for nothing on its way
const ATTENDED_MS = 150;

/** A probability, no finer than the record's 255 steps. */
const likely = (p) => percent(p, p < 0.1 ? 1 : 0);

/** What a person did to a position up to step t. */
function byHand(lane, cell, t) {
  const events = (lane.decoder.events ?? []).filter(({ position, step }) => position === cell && step <= t);
  const textOf = (event) => eventText(event).replace(/^position \d+ /, "");
  return events.map((event) => `${textOf(event)} at step ${event.step + 1}`).join(", ");
}

/**
 * A sentence about the words that a choice attended to most, and which of them were locked.
 * list: [[position, share], ...] from a dense forward of the step's tokens, of positions that were written before.
 */
export function lookedAt(trace, lane, t, list) {
  const words = list.slice(0, LISTED).map(([p, share]) => {
    const state = lane.isLocked(p, t - 1) ? " (locked)" : "";
    return `${trace.word(lane.token(p, t))} ${percent(share)}${state}`;
  });
  if (!words.length) return "";
  return `Among the tokens already written, this prediction attended most to ${words.join(", ")}.`;
}

export class Inspector {
  /**
   * pin(cell): pins it, or takes its pin away.
   * fetchTop(lane, position, step): a promise of [[id, piece, p], ...] or null, where the lane holds no likely tokens.
   * fetchAttended(trace, lane, position, step): a promise of the list that `lookedAt` reads, or null.
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

  /** A sentence about what was just asked of this cell; it goes with the cell. */
  say(text) {
    setText(this.note, text);
  }

  turnTo(cell) {
    if (cell !== this.cell) this.say("");
    this.cell = cell;
  }

  /** The position at the cursor's step. A lane's name has the step beside it that the lane is at. */
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

  /** Writes, a moment later, what the choice attended to, where the position is written in the step that the lane is at. */
  #attended({ lane, attended: line }, cell, t) {
    const { trace } = this;
    const wanted = this.fetchAttended && t >= 0 && lane.steps[t].unmasked.includes(cell) ? `${cell}/${t}` : "";
    if (line.dataset.wanted === wanted) return;
    line.dataset.wanted = wanted;
    setText(line, "");
    if (!wanted) return;
    setTimeout(async () => {
      if (line.dataset.wanted !== wanted) return; // the pointer has gone on
      const list = await this.fetchAttended(trace, lane, cell, t);
      if (list && line.dataset.wanted === wanted) setText(line, lookedAt(trace, lane, t, list));
    }, ATTENDED_MS);
  }

  /** Likely tokens: at once where the lanes hold them, else from the server, after a moment. */
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

  /** Pins are called by what stands there now: they do not tell a blank's word. */
  #namePins(step) {
    this.step = step;
    for (const { cell, pin, button } of this.pinned) {
      const name = pinName(this.trace, cell, { at: (lane) => this.trace.race.reached(lane, step) });
      setText(button, `${pin + 1}: ${name} ✕`);
      button.setAttribute("aria-label", `Unpin ${name}`);
    }
  }
}

/** “girl” at step 12; of several the last, and how many. list: see `Lane.takenBack`. */
function takenBack(trace, list) {
  const [step, token] = list.at(-1);
  const times = list.length > 1 ? `${list.length} times, last ` : "";
  return `${times}${trace.word(token)} at step ${step + 1}`;
}

function whenWritten(step) {
  if (Number.isNaN(step)) return "not yet";
  return step < 0 ? "prompt" : `step ${step + 1}`;
}
