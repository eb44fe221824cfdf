// Touching words: opens the menu of a pressed cell. For a touched lane it shows the wave, a sentence that counts the
// changes, the list of touches with undo, and the button that leads back to the race. It follows the page's state.

import "../loaded_first.js";
import { count, h, isNarrow, setText } from "../dom.js";
import { hides, page } from "../run/state.js";
import { eventText } from "../trace/described.js";
import { changedBy, MOST_TOUCHES, touchable, touchesOf } from "../trace/touches.js";
import { Menu } from "./menu.js";
import { TouchedRuns } from "./touched_runs.js";
import { Wave } from "./wave.js";
import { placeInPrompt } from "./words.js";

const NO_DECODER = "This is a recording: nothing here can decode another word. Open the page to choose one.";
const SMALL = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];

const inWords = (number, noun) =>
  number < SMALL.length ? `${SMALL[number]} ${noun}${number === 1 ? "" : "s"}` : count(number, noun);

/** The touches as the subject of a sentence. */
function subjectOf(touches) {
  if (touches.every(({ kind }) => kind === "write"))
    return touches.length > 1 ? `Your ${touches.length} words` : "Your word";
  if (touches.length > 1) return `Your ${touches.length} touches`;
  return { lock: "Your lock", unlock: "Your unlocking", mask: "Your mask", rule: "Your rule" }[touches[0].kind];
}

/** The sentence that counts the changes by touches up to a step of the cursor. */
export function changedText(trace, pair, step) {
  const { count: changed, of, first } = changedBy(trace, pair, step);
  const sentence = `${subjectOf(pair.touches)} changed ${changed} of ${of} others`;
  if (!first) return `${sentence}.`;
  const later = first.step - pair.touches[0].step;
  const when = later > 0 ? `${inWords(later, "step")} later` : "in the same step";
  return `${sentence}; the first, ${trace.word(pair.touched.token(first.cell, step))}, ${when}.`;
}

/** The text of a touch in the list. */
function touchText(trace, { original }, event) {
  const { step, kind, position, token } = event;
  const at = `step ${step + 1}`;
  if (kind === "write") {
    const was = original.token(position, original.count - 1);
    const instead = was >= 0 && was !== token ? ` for ${trace.word(was)}` : "";
    return `${trace.word(token)}${instead}, ${at}`;
  }
  return `${eventText(event)}, ${at}`;
}

/** The touching of a stage. */
export class Touching {
  menu = null;
  #goesOn = null; // lets the race go on that was moving when the menu opened

  /**
   * Adds touching to a stage.
   * @param {Stage} stage
   * @param {function} options.fetchTop see Inspector
   * @param {?object} options.touching {live() returns a Running, token(text), presets()}; null if the page has no
   *   decoder
   */
  constructor(stage, { fetchTop, touching = null }) {
    Object.assign(this, { stage, fetchTop, does: touching });
    this.runs = touching && new TouchedRuns(touching.live());
    this.sentence = h("p.sl-touched", { role: "status" });
    this.list = h("ol.sl-touches", { "aria-label": `Touches, at most ${MOST_TOUCHES}` });
    this.said = h("p.sl-hint", { role: "status" });
    const back = h("button.sl-small.sl-untouch", { onclick: () => this.#say(this.runs.back()) }, "Back to the race");
    this.back = touching ? back : null;
    this.node = h(
      "section.sl-touched-box",
      { "aria-label": "Touches", hidden: true },
      this.sentence,
      this.list,
      this.back,
      this.said,
    );
    stage.floor.grids.after(this.node);
    document.addEventListener(
      "click",
      ({ target }) => this.menu && !target.closest?.("canvas.sl-grid") && this.close(),
    );
    document.addEventListener("keydown", ({ key }) => key === "Escape" && this.close());
    page.follow(["trace"], ({ trace }) => this.#load(trace));
    page.follow(["step", "records"], () => this.#tell());
  }

  #load(trace) {
    if (!trace) return;
    this.close();
    this.pair = touchesOf(trace);
    this.node.hidden = !this.pair;
    page.set({ wave: this.pair && new Wave(this.pair, () => this.stage.floor.redrawGrids()) });
    setText(this.said, "");
    if (!this.pair) return;
    const { touches } = this.pair;
    const undo = () => h("button.sl-small.sl-undo", { onclick: () => this.#say(this.runs.undo()) }, "undo");
    const items = touches.map((event, i) => {
      const last = i === touches.length - 1 && this.does;
      return h("li", touchText(trace, this.pair, event), " ", last ? undo() : null);
    });
    this.list.replaceChildren(...items);
    this.#tell();
    this.stage.resize(); // the grids make room for the list
  }

  #say(why) {
    setText(this.said, why);
  }

  /** Counts the changes again, after the cursor has moved or records have come. */
  #tell() {
    const { trace, step } = page.now;
    if (this.pair && touchesOf(trace)?.touched === this.pair.touched)
      setText(this.sentence, changedText(trace, this.pair, step));
  }

  /** Opens the menu of a cell. The race pauses, and goes on when the menu is closed without a choice. */
  async open(side, cell) {
    this.close();
    const { stage } = this;
    const { trace, player } = page.now;
    const { lane } = side;
    const t = trace.race.reached(lane, page.now.step);
    const can = touchable(trace, lane, cell, t);
    this.#goesOn = player.hold();
    const at = { trace, lane, side, cell, t, can };
    const compares = !hides("inspector") && !document.body.matches(".sl-embed, .sl-present");
    const prompt = document.querySelector("#sl-prompt textarea");
    const does = {
      choose: (event) => this.#choose(lane, event),
      compare: compares && (() => this.#compare(side, cell)),
      caret: prompt && this.does && (() => this.#caret(prompt, cell)),
      close: () => this.close(),
      token: (text) => this.does.token(text),
      presets: () => this.does?.presets() ?? [],
    };
    this.menu = new Menu(at, does, this.#why(can, lane, t));
    stage.root.append(this.menu.node);
    page.set({ hover: cell });
    this.menu.offer(can.given ? null : lane.top(cell, can.seen));
    this.menu.place();
    this.menu.focus();
    if (!can.given && can.seen >= 0 && lane.top(cell, can.seen) === null) await this.#fetch(this.menu);
  }

  /** The reason why nothing can be chosen, a sentence, or "". */
  #why(can, lane, t) {
    if (!this.does || document.body.matches(".sl-embed")) return NO_DECODER;
    if (can.keeps) return can.keeps;
    if (can.given && can.next === null)
      return `“${lane.name}” has ended, where nothing locks any more: go back a few steps first.`;
    return can.writes === null && !can.given && can.next === null ? `“${lane.name}” ended after step ${t + 1}.` : "";
  }

  /** Fetches likely words that the trace does not contain. */
  async #fetch(menu) {
    const { trace, lane, cell, can } = menu.at;
    const top = await this.fetchTop?.(lane, cell, can.seen);
    if (this.menu !== menu || !top) return;
    for (const [id, piece] of top) if (piece !== null) trace.pieces.add({ [id]: piece });
    menu.offer(top.map(([id, , p]) => [id, p]));
  }

  #choose(lane, event) {
    const goesOn = this.#goesOn;
    this.#goesOn = null; // the new run on show has another cursor
    const why = this.runs.touch(lane, event);
    if (!why) return this.close();
    this.#goesOn = goesOn;
    setText(this.menu.said, why);
  }

  #compare(side, cell) {
    this.#goesOn = null;
    this.close();
    this.stage.floor.cells.compare(side, cell);
  }

  /** Sets the caret to the word in the prompt's field. */
  #caret(field, cell) {
    const { trace } = page.now;
    this.close();
    const promptBox = document.querySelector(".sl-prompt-box textarea");
    const isFormOpen = () => document.querySelector(".sidebar.open") !== null;
    const opens = promptBox && !isFormOpen() && !isNarrow();
    if (opens) document.querySelector(".sl-action-prompt")?.click();
    const target = opens && promptBox.checkVisibility() ? promptBox : field;
    if (target === field && !isFormOpen()) document.querySelector(".sl-action-form")?.click();
    const at = placeInPrompt(trace, target.value, cell);
    const put = () => {
      target.focus();
      target.setSelectionRange(at, at);
    };
    put();
    setTimeout(put, 100); // again when the form has opened
  }

  close() {
    const { menu } = this;
    if (!menu) return;
    this.menu = null;
    const focused = menu.node.contains(document.activeElement);
    menu.node.remove();
    if (focused && menu.at.side.canvas.isConnected) menu.at.side.canvas.focus({ preventScroll: true });
    this.#goesOn?.();
    this.#goesOn = null;
  }
}
