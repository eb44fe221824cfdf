// The stops of a slider for a number. They are equally spaced, or on a logarithmic scale 1, 2, 5, 10, ... with
// "never" at the left end. If the setting may be left out, the stop at the right end is null.

const NEVER = -1;

/** The attribute `step` of a number's field: 1 for whole numbers, else "any". */
export const decimals = ({ kind }) => (kind === "whole" ? 1 : "any");

/** The stops for a setting, by its description. */
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

/** The index of the stop nearest to a value on the slider's scale. */
export function nearest(all, value, log) {
  if (value === null || value < 0) return all.indexOf(value === null ? null : NEVER);
  const scale = (x) => (log ? Math.log(Math.max(x, 1e-12)) : x);
  const far = (stop) => (stop === null || stop < 0 ? Infinity : Math.abs(scale(stop) - scale(value)));
  return all.reduce((best, stop, i) => (far(stop) < far(all[best]) ? i : best), 0);
}
