// The three kinds of questions of a lesson: their controls, and how a prediction is set beside what a run shows.

import { count, h, isTouch, setText } from "../dom.js";
import { among } from "./answers.js";

const LISTED = 6;
const CLOSE = { "%": 5, steps: 1 }; // a prediction this near counts as right

/** A number as the question asks for it: shares are in per cent. */
const inUnit = ({ unit }, value) => (unit === "%" ? Math.round(100 * value) : Math.round(2 * value) / 2);
const shown = ({ unit }, value) => `${value} ${unit === "steps" && value === 1 ? "step" : unit}`;
const optionText = ({ options }, id) => options.find((option) => option.id === id)?.text ?? "something else";

/** Whether a value can be a prediction of this question: another edition of the lesson may have asked for another kind. */
export function suits({ kind, options }, value) {
  if (kind === "cells") return Array.isArray(value);
  return kind === "value" ? Number.isFinite(value) : options.some(({ id }) => id === value);
}

/** A prediction, or an answer, in words. nameOf(position). */
export function inWords(question, value, nameOf) {
  if (question.kind === "value") return shown(question, inUnit(question, value));
  if (question.kind === "choose") return optionText(question, value);
  if (!value.length) return "none";
  const names = value.slice(0, LISTED).map(nameOf);
  return value.length > LISTED ? `${names.join(", ")} and more` : among(names);
}

/** {right, text}: a prediction beside the answer. predicted is undefined where none was made. nameThen(position): as it was called when it was predicted; why: the answer's reason, a sentence. */
export function besides(question, predicted, answer, nameOf, { nameThen = nameOf, why = "" } = {}) {
  if (question.kind === "value" && !Number.isFinite(answer))
    return { right: false, text: "This run has nothing to measure the answer by." };
  const truth = `On this run: ${inWords(question, answer, nameOf)}.`;
  const joined = (...sentences) => [...sentences, why].filter(Boolean).join(" ");
  if (predicted === undefined) return { right: false, text: joined("You made no prediction.", truth) };
  const { right, gap } = compared(question, predicted, answer);
  return { right, text: joined(`You predicted: ${inWords(question, predicted, nameThen)}.`, truth, gap) };
}

function compared(question, predicted, answer) {
  if (question.kind === "choose") {
    const right = predicted === answer;
    return { right, gap: right ? "You were right." : "You were wrong." };
  }
  if (question.kind === "cells") {
    const hits = predicted.filter((p) => answer.includes(p)).length;
    return {
      right: hits === predicted.length,
      gap: `${hits} of your ${predicted.length} ${hits === 1 ? "is" : "are"} right.`,
    };
  }
  const by = Math.abs(inUnit(question, predicted) - inUnit(question, answer));
  const far = count(by, question.unit === "%" ? "point" : "step");
  const way = predicted < answer ? "too low" : "too high";
  return { right: by <= CLOSE[question.unit], gap: by ? `You were ${far} ${way}.` : "You were right." };
}

/** A question's controls. value is the prediction, undefined as long as there is none. */
export class Question {
  /** pins() are the positions pinned on the stage; nameOf(position); given: an earlier prediction; onChange() when `value` may be another. */
  constructor(question, { pins, nameOf, given, onChange }) {
    Object.assign(this, { question, pins, nameOf, value: given });
    const set = (value) => {
      this.value = value;
      onChange();
    };
    const controls = { cells: () => this.#cells(), value: () => this.#number(set), choose: () => this.#choices(set) };
    this.node = h("div.sl-question", controls[question.kind]());
    this.looked();
  }

  looked() {
    const { kind, count } = this.question;
    if (kind !== "cells") return;
    const pins = this.pins();
    this.value = pins.length === count ? pins : undefined;
    const names = pins.length ? `: ${among(pins.map(this.nameOf))}` : "";
    setText(this.status, `${pins.length} of ${count} pinned${names}.${pins.length > count ? " Unpin one." : ""}`);
  }

  /** Says why a cell cannot be pinned, if it cannot. */
  refuse(why) {
    if (why) setText(this.status, why);
    return Boolean(why);
  }

  #cells() {
    const how = isTouch() ? "Tap a cell twice." : "Click a cell, or move to it with the arrow keys and press Enter.";
    const hint = `${how} Once more takes the pin away.`;
    this.status = h("p", { role: "status" });
    return [h("p", h("strong", this.question.ask)), h("p.sl-hint", hint), this.status];
  }

  #number(set) {
    const { low, high, unit, ask } = this.question;
    const scale = unit === "%" ? 100 : 1;
    const output = h("output", "move the slider");
    const tell = () => setText(output, shown(this.question, Number(range.value)));
    const value = this.value === undefined ? (low + high) / 2 : scale * this.value;
    const range = h("input", { type: "range", min: low, max: high, step: 1, value });
    range.addEventListener("input", () => {
      tell();
      set(Number(range.value) / scale);
    });
    if (this.value !== undefined) tell();
    return h("label.sl-question-value", h("strong", ask), h("span", range, output));
  }

  #choices(set) {
    const { ask, options } = this.question;
    const option = ({ id, text }) => {
      const chosen = { checked: this.value === id, onchange: () => set(id) };
      return h("label", h("input", { type: "radio", name: "sl-question", value: id, ...chosen }), h("span", text));
    };
    return h("fieldset", h("legend", h("strong", ask)), options.map(option));
  }
}
