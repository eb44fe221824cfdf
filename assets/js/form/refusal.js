// Shows the reason why a run was refused, beside the field that is wrong.

import { h, setText } from "../dom.js";
import { page } from "../run/state.js";
import { described } from "../trace/described.js";

/** The name of the field that a refusal is about: "prompt", the name of a setting, or null. */
export function fieldOf(text) {
  const labels = Object.entries(described.settings).map(([name, { label }]) => [name, label]);
  const named = labels.filter(([, label]) => text.includes(label)).sort(([, a], [, b]) => b.length - a.length);
  if (/^prompt|^too long|character/i.test(text) || !named.length)
    return /prompt|too long|character/i.test(text) ? "prompt" : null;
  return named[0][0];
}

/** Makes the line that shows a refusal of the prompt. */
export function refusalLine() {
  const line = h("p.sl-refused", { role: "alert" });
  page.follow(["refused"], ({ refused }) => setText(line, refused?.field === "prompt" ? refused.text : ""));
  return line;
}

/** Shows refusals of settings beneath their fields in the sidebar. open(): opens the sidebar. */
export function followRefusals(open) {
  const line = h("p.sl-refused", { role: "alert" });
  page.follow(["refused"], ({ refused }) => {
    const field = refused?.field && document.getElementById(`sl-${refused.field.replaceAll("_", "-")}`);
    setText(line, "");
    if (!field || refused.field === "prompt") return line.remove();
    field.append(line);
    setText(line, refused.text);
    open();
    field.querySelector("input, select")?.focus({ preventScroll: true });
  });
}
