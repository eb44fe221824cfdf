// Terms that explain themselves: buttons that say on hover, focus and tap what a word means, see glossary.js.

import { h } from "../dom.js";
import { Part } from "../stage/part.js";

const glossary = new Part(
  () => import("./glossary.js"),
  (module) => module,
  () => {}, // the next hover asks again
);

/** Moves the focus to the next or previous term of a row. Before the grids Tab stops at the first term alone. */
function moveAlong(event) {
  const row = event.target.closest("[data-terms]");
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!row || !by) return;
  event.preventDefault();
  event.stopPropagation();
  const terms = [...row.querySelectorAll(".sl-term")];
  terms[terms.indexOf(event.target) + by]?.focus();
}

/** A term that explains itself. text: how it reads here. stop: whether Tab stops at it. */
export function term(name, text = name, { stop = true } = {}) {
  const node = h("button.sl-term", { tabindex: stop ? null : -1 }, text);
  const open = () => glossary.use((tips) => node.matches(":hover, :focus") && tips.explain(node, name));
  node.addEventListener("pointerenter", ({ pointerType }) => pointerType === "mouse" && open());
  node.addEventListener("pointerleave", ({ pointerType }) => pointerType === "mouse" && glossary.made?.closeTipSoon());
  node.addEventListener("focus", open);
  node.addEventListener("blur", () => glossary.made?.closeTip());
  node.addEventListener("click", open);
  node.addEventListener("keydown", moveAlong);
  return node;
}

/** A text in which the first mention of each of these terms explains itself: a list of children. */
export function explained(text, names, options) {
  const parts = [text];
  for (const name of names) {
    const i = parts.findIndex((part) => typeof part === "string" && part.includes(name));
    if (i < 0) continue;
    const at = parts[i].indexOf(name);
    parts.splice(i, 1, parts[i].slice(0, at), term(name, name, options), parts[i].slice(at + name.length));
  }
  return parts.filter((part) => part !== "");
}
