// What if? At the step on show, a position of one lane can be locked, unlocked, written or masked again, or the lane
// given another rule from here on: a new lane with the same settings and one event more runs on beside its parent.

import { h, setText } from "../dom.js";
import { doneAt } from "../run/branching.js";
import { isMasked, LOCKED } from "../trace/states.js";
import { MakeRoom } from "./makeroom.js";

/** From when on a lane that has done its step t would be another, in a sentence. */
export function from(lane, t) {
  const { name } = lane;
  if (lane.endsAt(t)) return `“${name}” is at its end, where nothing is decided any more: go back a few steps first.`;
  const done = t < 0 ? "has done no step yet" : `has done its step ${t + 1}`;
  return `“${name}” ${done}. From its step ${t + 2} on, the same run with one thing changed:`;
}

/** What tokens are called on buttons, each another: by their words, a space before them where that tells them apart, else by their numbers, too. */
export function wordsApart(ids, pieces) {
  const plain = ids.map((id) => pieces.name(id));
  const alone = (names, i) => names.filter((name) => name === names[i]).length === 1;
  const bare = plain.map((name) => name.trim());
  const spaced = plain.map((name) => name.replace(/^ (?=\S)/, "␣"));
  return ids.map((id, i) => {
    if (alone(bare, i)) return bare[i];
    return alone(spaced, i) ? spaced[i] : `${spaced[i]} #${id}`;
  });
}

export class WhatIf {
  /** options: {branch(lane, event, name, gone) starts the lane, token(text) -> Promise of {id} or {problem}, presets() -> [{id, name, compute}, ...]}. */
  constructor({ branch, token, presets }) {
    Object.assign(this, { branch, token, presets, cell: -1, step: -1 });
    this.lanes = h("select.sl-speed", { "aria-label": "Whose run", onchange: () => this.#buttons() });
    this.actions = h("div.sl-whatif-actions");
    this.likely = h("div.sl-whatif-actions", { "aria-label": "Likely tokens" });
    this.word = h("input.sl-whatif-word", { type: "text", "aria-label": "Another token", maxlength: 40 });
    this.rule = h("select.sl-speed", { "aria-label": "Another rule" });
    this.said = h("p.sl-hint", { role: "status" });
    this.room = new MakeRoom();
    this.from = h("span");
    this.asked = "";
    const writes = { onsubmit: (event) => this.#writeWord(event) };
    const write = h("form.sl-whatif-actions", writes, this.word, h("button.sl-small", { type: "submit" }, "Write it"));
    const change = h("button.sl-small", { onclick: () => this.#changeRule() }, "Change the rule");
    this.write = h("div.sl-whatif-write", this.likely, write);
    const head = [h("summary", "What if …"), h("p.sl-hint", this.from), this.lanes];
    const parts = [this.actions, this.write, this.said, h("div.sl-whatif-actions", this.rule, change), this.room.node];
    this.node = h("details.sl-whatif", { ontoggle: () => this.#buttons() }, head, parts);
  }

  load(trace) {
    Object.assign(this, { trace, asked: "", fetched: {} });
    const chosen = trace.lanes.at(-1).id;
    this.lanes.replaceChildren(
      ...trace.lanes.map(({ id, name }) => h("option", { value: id, selected: id === chosen }, name)),
    );
    setText(this.said, "");
    this.room.close();
  }

  draw(cell, step) {
    Object.assign(this, { cell, step });
    if (this.node.open) this.#buttons();
  }

  turnTo(lane) {
    if (this.lanes.value !== lane.id) this.lanes.value = lane.id;
  }

  get lane() {
    return this.trace.lane(this.lanes.value);
  }

  #buttons() {
    if (!this.node.open || !this.trace || this.cell < 0) return;
    const { lane, cell } = this;
    const t = this.trace.race.reached(lane, this.step);
    const ended = lane.endsAt(t);
    setText(this.from, from(lane, t));
    const key = `${lane.id}/${cell}/${t}/${ended}`;
    if (this.asked === key) return;
    this.asked = key;
    const state = lane.row(t)[cell];
    const masked = isMasked(state);
    const prompt = Boolean(this.trace.given[cell]);
    const event = (kind) => ({ kind, position: cell });
    this.actions.replaceChildren(
      this.#button("Lock it", !ended && !masked && state !== LOCKED, event("lock")),
      this.#button("Unlock it", !ended && state === LOCKED, event("unlock")),
      this.#button("Mask it again", !ended && !masked && !prompt, event("mask")),
    );
    this.write.hidden = prompt;
    this.#words(lane, t);
    if (!this.rule.length) this.rule.append(...this.presets().map(({ id, name }) => h("option", { value: id }, name)));
  }

  #button(text, allowed, event, name) {
    const onclick = () => this.#do(event, name);
    return h("button.sl-small", { disabled: !allowed, onclick }, text);
  }

  #words(lane, t) {
    const { cell } = this;
    const present = lane.token(cell, t);
    const words = (lane.top(cell, t) ?? this.fetched[this.asked] ?? []).filter(([id]) => id !== present);
    const end = [...this.trace.ends].filter((id) => id !== present && !words.some(([each]) => each === id));
    const ids = [...words.map(([id]) => id), ...end.slice(0, 1)];
    const names = wordsApart(ids, this.trace.pieces);
    const button = (token, name) =>
      this.#button(`Write “${name}”`, !lane.endsAt(t), { kind: "write", position: cell, token }, name);
    this.likely.replaceChildren(...ids.map((id, i) => button(id, names[i])));
  }

  /** Likely tokens that came from the server: [[id, p], ...]. Those that are there already stay the same buttons. */
  offer(lane, cell, step, list) {
    const key = `${lane.id}/${cell}/${lane.clamp(step)}/false`;
    const known = this.fetched[key]?.length;
    this.fetched[key] = list;
    if (!known && key === this.asked) this.#words(lane, lane.clamp(step));
  }

  async #writeWord(event) {
    event.preventDefault();
    const text = this.word.value;
    const { trace, lane, cell, step } = this;
    const found = await this.token(text);
    if (trace !== this.trace) return this.#say("Another run is on show by now: write it again.");
    if (!found || found.problem) return this.#say(found?.problem ?? "The server did not answer; try again.");
    if (found.piece !== null) trace.pieces.add({ [found.id]: found.piece });
    this.#do({ kind: "write", position: cell, token: found.id }, text.trim(), { lane, step });
  }

  /** What is refused is read where it was asked for. */
  #say(why) {
    setText(this.said, why);
    if (why) this.said.scrollIntoView({ block: "nearest" });
  }

  #changeRule() {
    const preset = this.presets().find(({ id }) => id === this.rule.value);
    if (preset) this.#do({ kind: "rule", compute: preset.compute }, preset.name);
  }

  #do(change, word, { lane, step } = this) {
    const { event, name } = doneAt(this.trace, lane, step, change, word);
    const told = (why) => this.#say(why);
    told(this.room.ask(this.trace, lane, (gone) => this.branch(lane, event, name, gone), told));
  }
}
