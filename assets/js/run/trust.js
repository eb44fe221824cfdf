// Decides whether a typed rule may run. A rule runs without a question if it was typed on this page. A rule from a
// link or a file is shown first, and runs if the visitor agrees.

import { h } from "../dom.js";
import { described } from "../trace/described.js";

const APART =
  "It runs in an interpreter of its own, which reaches neither this page nor the network. Read it before you let it run.";

const known = new Set([described.compute.own?.settings.code.default]);

/** Lets a rule's text run without a question. */
export const trust = (code) => known.add(code);

/** A promise of whether all rules may run. The visitor is asked about unknown rules, one after another. */
export async function mayRun(codes) {
  for (const code of codes) if (!known.has(code) && !(await letRun(code))) return false;
  return true;
}

function letRun(code) {
  return new Promise((then) => {
    const button = (value, text) => h("button.sl-small", { type: "submit", value }, text);
    const dialog = h(
      "dialog.sl-letting",
      { "aria-labelledby": "sl-letting" },
      h("h2", { id: "sl-letting" }, "This rule came with a link or a file"),
      h("p", APART),
      h("pre", { tabindex: 0 }, code),
      h("form", { method: "dialog" }, button("run", "Let it run"), button("", "Do not run it")),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (dialog.returnValue === "run") trust(code);
      then(dialog.returnValue === "run");
    });
    document.querySelector(".sl-stage").append(dialog);
    dialog.showModal();
  });
}
