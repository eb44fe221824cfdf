// A run that is refused: the sentence stands at the field that it is about, which stays open.

import { h, setText } from "../dom.js";
import { page } from "../run/state.js";
import { described } from "../trace/described.js";

/** The name of the field that a refusal is about: "prompt", a setting's, or null. */
export function fieldOf(text) {
  const labels = Object.entries(described.settings).map(([name, { label }]) => [name, label]);
  const named = labels.filter(([, label]) => text.includes(label)).sort(([, a], [, b]) => b.length - a.length);
  if (/^prompt|^too long|character/i.test(text) || !named.length)
    return /prompt|too long|character/i.test(text) ? "prompt" : null;
  return named[0][0];
}

/** A line that shows what was refused about a prompt. */
export function refusalLine() {
  const line = h("p.sl-refused", { role: "alert" });
  page.follow(["refused"], ({ refused }) => setText(line, refused?.field === "prompt" ? refused.text : ""));
  return line;
}

/** Puts what was refused about a setting beneath its field in the sidebar, which opens. open(): opens it. */
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
