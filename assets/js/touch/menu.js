// The menu of a cell: the likeliest words with their shares, another word, locks, and other touches. On a narrow screen
// the menu is a sheet at the bottom. Arrow keys move the focus in the menu, Escape closes it.

import { h, isNarrow, percent, select, setText, zoomOf } from "../dom.js";
import { STATES } from "../trace/states.js";
import { wordsApart } from "./words.js";

const GAP = 6; // pixels between a cell and its menu
const LISTED = 5; // the most words that are offered

const likely = (p) => percent(p, p < 0.1 ? 1 : 0);

/**
 * The cell of a menu.
 * @typedef {object} MenuPlace
 * @property {Trace} trace
 * @property {Lane} lane
 * @property {Side} side the view of the lane
 * @property {number} cell
 * @property {number} t the lane's step that is shown
 * @property {Touchable} can what can be done to the cell
 */

/**
 * What a menu calls.
 * @typedef {object} MenuActions
 * @property {function(object): void} choose touches the lane with an event
 * @property {?function(): void} compare opens the drawer, null if the page has none
 * @property {?function(): void} caret leads to the word in the prompt's field, null if there is none
 * @property {function(): void} close
 * @property {function(string): Promise<object>} token looks up the token of a text
 * @property {function(): object[]} presets the rules that a lane can have
 */

/** The menu. */
export class Menu {
  /**
   * @param {MenuPlace} at
   * @param {MenuActions} does
   * @param {string} why the reason why nothing can be chosen, a sentence, or ""
   */
  constructor(at, does, why) {
    Object.assign(this, { at, does, why });
    this.words = h("div.sl-touch-words", { role: "group", "aria-label": "Likely words" });
    this.further = h("div.sl-touch-further", { role: "group", "aria-label": "More", hidden: true });
    this.menu = h(
      "div.sl-touch",
      { role: "menu", "aria-label": this.#title },
      this.#chips(),
      this.words,
      this.#actions(),
      this.further,
    );
    this.said = h("p.sl-touch-said", { role: "status" }, why);
    this.form = this.#field();
    this.rules = this.#rules();
    const close = h("button.sl-touch-close", { "aria-label": "Close", onclick: () => does.close() }, "✕");
    const head = h("header", h("strong", this.#title), close);
    this.node = h(
      "section.sl-touch-box",
      { "aria-label": "A cell" },
      head,
      this.menu,
      this.form,
      this.rules,
      this.said,
    );
    this.node.addEventListener("keydown", (event) => this.#key(event));
    this.node.addEventListener("click", (event) => event.stopPropagation());
  }

  get #title() {
    const { trace, lane, cell, t } = this.at;
    const token = lane.token(cell, t);
    const word = token < 0 ? "a blank" : trace.word(token);
    return `${word}, ${STATES[lane.row(t)[cell]]}`;
  }

  /** The words of the list of the cell's blank, as chips with their shares; null if the cell is in no such blank. */
  #chips() {
    const { trace, lane, cell, t } = this.at;
    const isHere = ({ at, words }) => cell >= at && cell < at + words[0].length;
    const list = (trace.header.lists ?? []).find(isHere);
    if (!list) return null;
    const shares = lane.shares(list.at, t);
    const chips = list.words.map((word, i) => {
      const share = shares ? likely(shares[i]) : "–";
      return h("span.sl-chip", h("bdi", trace.pieces.text(word).trim()), " ", h("span.sl-touch-share", share));
    });
    return h("div.sl-touch-chips", { role: "group", "aria-label": "Words of the list" }, chips);
  }

  #item(text, onclick, more = {}) {
    const { disabled, ...others } = more;
    const attributes = { role: "menuitem", tabindex: -1, "aria-disabled": disabled ? "true" : undefined, ...others };
    return h("button.sl-touch-item", { ...attributes, onclick: () => disabled || onclick() }, text);
  }

  #event(kind, more = {}) {
    const { cell, can } = this.at;
    const step = kind === "write" ? can.writes : can.next;
    const place = kind === "rule" ? {} : { position: cell };
    return { step, kind, ...place, ...more };
  }

  #actions() {
    const { can, lane } = this.at;
    const { choose, compare, caret } = this.does;
    const rule = lane.decoder.compute.lock ?? lane.decoder.compute;
    const locks = ["lock", "age", "own"].includes(rule.kind) || can.locked;
    const free = this.why === "" && can.next !== null;
    const items = [];
    if (can.writes !== null && !this.why) items.push(this.#item("another word …", () => this.#open(this.form)));
    if (can.given && caret) items.push(this.#item("change it in the prompt", caret));
    if (free && locks && !can.masked) {
      const [kind, text] = can.locked ? ["unlock", "let it go"] : ["lock", "lock it here"];
      items.push(this.#item(text, () => choose(this.#event(kind))));
    }
    if (compare) items.push(this.#item("compare", compare));
    if (free) items.push(this.#item("more", () => this.#more(), { "aria-expanded": "false", "aria-haspopup": "true" }));
    return h("div.sl-touch-actions", { role: "group", "aria-label": "What else" }, items);
  }

  #more() {
    const { can } = this.at;
    const { choose } = this.does;
    const [opener] = [...this.menu.querySelectorAll("[aria-haspopup]")];
    const open = this.further.hidden;
    opener.setAttribute("aria-expanded", String(open));
    this.further.hidden = !open;
    if (!open) return;
    const masks = !can.given && !can.masked && !can.keeps;
    const [end] = this.at.trace.ends;
    const ends = can.writes !== null && end !== undefined && end !== null;
    const finish = () => choose(this.#event("write", { token: end }));
    const mask = () => choose(this.#event("mask"));
    this.further.replaceChildren(
      ...(ends ? [this.#item("end the text here", finish)] : []),
      ...(masks ? [this.#item("mask it again", mask)] : []),
      this.#item("another rule from here …", () => this.#open(this.rules)),
    );
    this.further.firstChild.focus({ preventScroll: true });
    this.place();
  }

  /** Shows one of the two forms beneath the menu. */
  #open(node) {
    for (const field of [this.form, this.rules]) field.hidden = field !== node;
    this.place();
    node.querySelector("input, select").focus({ preventScroll: true });
  }

  #field() {
    const word = h("input", { type: "text", "aria-label": "Another word", maxlength: 40, autocomplete: "off" });
    const onsubmit = (event) => {
      event.preventDefault();
      this.#write(word.value);
    };
    return h(
      "form.sl-touch-form",
      { onsubmit, hidden: true },
      word,
      h("button.sl-small", { type: "submit" }, "Write it"),
    );
  }

  async #write(text) {
    setText(this.said, "…");
    const answer = await this.does.token(text);
    if (!this.node.isConnected) return;
    const pieces = answer?.pieces ?? [];
    const { trace } = this.at;
    if (answer && !answer.problem) {
      if (answer.piece !== null) trace.pieces.add({ [answer.id]: answer.piece });
      return this.does.choose(this.#event("write", { token: answer.id }));
    }
    if (pieces.length < 2) return setText(this.said, answer?.problem ?? "The model did not answer; try again.");
    for (const [id, piece] of pieces) if (piece !== null) trace.pieces.add({ [id]: piece });
    const [[first]] = pieces;
    const names = pieces.map(([id]) => trace.pieces.name(id).trim()).join("·");
    const choose = () => this.does.choose(this.#event("write", { token: first }));
    const take = h("button.sl-small", { onclick: choose }, `Write ${trace.word(first)}`);
    this.said.replaceChildren(`For this model that is ${pieces.length} pieces: ${names}. `, take);
    this.place();
  }

  #rules() {
    const presets = this.does.presets();
    const list = select(
      "select.sl-speed",
      { "aria-label": "Another rule" },
      presets.map(({ id, name }) => [id, name]),
    );
    const onclick = () => {
      const { compute } = presets.find(({ id }) => id === list.value);
      this.does.choose(this.#event("rule", { compute }));
    };
    return h("div.sl-touch-form", { hidden: true }, list, h("button.sl-small", { onclick }, "Take it from here"));
  }

  /** Offers the likeliest words. list: [[id, p], ...], null if they are not known yet or were not kept. */
  offer(list) {
    const { trace, lane, cell, t, can } = this.at;
    if (!list?.length) return;
    const present = lane.token(cell, t);
    const shown = list.slice(0, LISTED);
    const names = wordsApart(
      shown.map(([id]) => id),
      trace.pieces,
    );
    const free = can.writes !== null && !this.why;
    const focused = this.node.contains(document.activeElement);
    const items = shown.map(([token, p], i) => {
      const bar = h("span.sl-touch-bar", { "aria-hidden": "true" });
      bar.style.width = `${(100 * p).toFixed(1)}%`;
      const now = token === present;
      const choose = () => (now ? this.does.close() : this.does.choose(this.#event("write", { token })));
      const parts = [bar, h("bdi", { dir: "ltr" }, names[i]), h("span.sl-touch-share", likely(p))];
      const more = { disabled: !free, "aria-current": now ? "true" : undefined };
      const item = this.#item("", choose, more);
      item.replaceChildren(...parts);
      item.classList.add("sl-touch-word");
      return item;
    });
    this.words.replaceChildren(...items);
    if (focused && !this.node.contains(document.activeElement)) this.focus();
    this.place();
  }

  get items() {
    return [...this.menu.querySelectorAll("[role=menuitem]")].filter((item) => !item.closest("[hidden]"));
  }

  focus() {
    (this.items[0] ?? this.node.querySelector("button")).focus({ preventScroll: true });
  }

  #key(event) {
    event.stopPropagation(); // keys in the menu must not move the cursor of the race
    const { items } = this;
    const now = items.indexOf(document.activeElement);
    const places = { ArrowDown: now + 1, ArrowUp: now - 1 + items.length, Home: 0, End: items.length - 1 };
    if (event.key === "Escape") this.does.close();
    else if (now >= 0 && event.key in places) items[places[event.key] % items.length].focus({ preventScroll: true });
    else return;
    event.preventDefault();
  }

  /** Puts the menu beside its cell, inside the window. On a narrow screen the stylesheet puts it at the bottom. */
  place() {
    const { side, cell } = this.at;
    const { style } = this.node;
    if (isNarrow()) return style.removeProperty("transform");
    const zoom = zoomOf(side.canvas);
    const [x, y, w] = side.grid.rect(cell);
    const grid = side.canvas.getBoundingClientRect();
    const parent = this.node.offsetParent?.getBoundingClientRect() ?? { left: 0, top: 0 };
    const { width, height } = this.node.getBoundingClientRect();
    const left = grid.left + x * zoom;
    const top = grid.top + (y - side.grid.top) * zoom;
    const beside = left + w * zoom + GAP;
    const room = document.documentElement.clientWidth - width - GAP;
    const at = beside <= room ? beside : Math.max(GAP, left - width - GAP);
    const below = Math.min(top, innerHeight - height - GAP);
    const dx = (at - parent.left) / zoom;
    const dy = (Math.max(GAP, below) - parent.top) / zoom;
    style.transform = `translate(${dx}px, ${dy}px)`;
  }
}
