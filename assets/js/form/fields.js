// The form's fields, made from the descriptions of settings.

import { decimals, nearest, stops } from "../curves/slider.js";
import { h, select, setText } from "../dom.js";
import { trust } from "../run/trust.js";
import { valueText } from "../trace/described.js";

/** Makes a field: the label of a setting, a control, and an optional output beside the label. */
export function row(setting, control, output = null) {
  const head = h("span.sl-field-head", h("span", setting.label), output);
  return h("label.sl-field", { title: setting.help }, head, control);
}

/** Makes a field with a list. options: [[id, text], ...]. set(id): called for a choice. said: text beside the label. */
export const choice = (label, options, value, set, said = "") =>
  row(
    { label, help: "" },
    select("select", { onchange: ({ target }) => set(target.value) }, options, value),
    said ? h("small", said) : null,
  );

/** Makes the field of a setting that is true or false. */
export function checkbox(setting, value, set) {
  const control = h("input", { type: "checkbox", checked: value, onchange: () => set(control.checked) });
  return h("label.sl-field.sl-field-check", { title: setting.help }, control, h("span", setting.label));
}

function numberField(setting, value, set) {
  const control = h("input", { type: "number", value, min: setting.low, max: setting.high, step: decimals(setting) });
  control.addEventListener("change", () => {
    const wanted = control.value === "" ? setting.default : Number(control.value);
    set(Math.min(setting.high ?? Infinity, Math.max(setting.low ?? -Infinity, wanted)));
  });
  return row(setting, control);
}

function codeField(setting, value, set) {
  const control = h("textarea.sl-code", { rows: 16, spellcheck: "false", maxlength: setting.high }, value);
  control.addEventListener("change", () => {
    trust(control.value);
    set(control.value);
  });
  return row(setting, control);
}

function slider(setting, value, set) {
  const all = stops(setting);
  const show = (x) => {
    setText(output, valueText(x, setting));
    range.setAttribute("aria-valuetext", valueText(x, setting));
  };
  const output = h("output.sl-field-value");
  const heard = { oninput: () => show(all[range.value]), onchange: () => set(all[range.value]) };
  const at = { type: "range", max: all.length - 1, value: nearest(all, value, setting.log) };
  const range = h("input", { ...at, "aria-label": setting.label, ...heard });
  show(value);
  return row(setting, range, output);
}

/** Makes the field of a setting that is no group. set(value): called after a change by the visitor. */
export function field(setting, value, set) {
  if (setting.kind === "code") return codeField(setting, value, set);
  if (setting.kind === "flag") return checkbox(setting, value, set);
  return setting.offered ? slider(setting, value, set) : numberField(setting, value, set);
}
