// Terms: buttons that show the meaning of a word on hover, focus and tap, see glossary.js.

import { h } from "../dom.js";
import { Part } from "../stage/part.js";

const glossary = new Part(
  () => import("./glossary.js"),
  (module) => module,
  () => {}, // if the module cannot be loaded, the next hover tries again
);

/** Moves the focus to the next or previous term of a row by an arrow key. The Tab key stops only at the first term. */
function moveAlong(event) {
  const row = event.target.closest("[data-terms]");
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!row || !by) return;
  event.preventDefault();
  event.stopPropagation();
  const terms = [...row.querySelectorAll(".sl-term")];
  terms[terms.indexOf(event.target) + by]?.focus();
}

/** Makes a term. text: the text in place of the term's name. stop: whether the Tab key stops at it. */
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

/** The children of a node for a text in which the first mention of every term of `names` is a term. */
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
