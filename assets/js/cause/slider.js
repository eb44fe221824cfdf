// A slider for a number: in steps, or in 1-2-5 steps on a logarithmic scale with "never" at its left end. Where the
// setting may be left out, its left end says so.

import { h, setText } from "../dom.js";
import { valueText } from "../trace/described.js";

const NEVER = -1;

/** The step of a number's field: whole numbers, or anything. */
export const decimals = ({ kind }) => (kind === "whole" ? 1 : "any");

/** The values that the slider can take. */
export function stops({ offered: [low, high, step], log, none }) {
  const values = [];
  if (log) {
    const from = Math.round(Math.log10(low));
    const decades = Math.round(Math.log10(high)) - from;
    for (let i = 0; i < decades; i++) for (const m of [1, 2, 5]) values.push(Number(`${m}e${from + i}`));
    values.push(high);
    return low < 1e-6 ? [NEVER, ...values] : values;
  }
  const count = Math.round((high - low) / step);
  for (let i = 0; i <= count; i++) values.push(Number((low + i * step).toFixed(6)));
  return none ? [...values, null] : values;
}

/** The place of the stop nearest to a value, on the slider's own scale. */
export function nearest(all, value, log) {
  if (value === null || value < 0) return all.indexOf(value === null ? null : NEVER);
  const scale = (x) => (log ? Math.log(Math.max(x, 1e-12)) : x);
  const far = (stop) => (stop === null || stop < 0 ? Infinity : Math.abs(scale(stop) - scale(value)));
  return all.reduce((best, stop, i) => (far(stop) < far(all[best]) ? i : best), 0);
}

export function slider(setting, value, set) {
  const all = stops(setting);
  const show = (x) => {
    setText(output, valueText(x, setting));
    range.setAttribute("aria-valuetext", valueText(x, setting));
  };
  const output = h("output.sl-field-value");
  const range = h("input", { type: "range", min: 0, max: all.length - 1, step: 1, "aria-label": setting.label });
  range.value = nearest(all, value, setting.log);
  range.addEventListener("input", () => show(all[range.value]));
  range.addEventListener("change", () => set(all[range.value]));
  const head = h("span.sl-field-head", h("span", setting.label), output);
  show(value);
  return h("label.sl-field", { title: setting.help }, head, range);
}
