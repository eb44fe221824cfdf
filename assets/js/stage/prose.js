// Writes texts as paragraphs in which differences are marked.

import { h } from "../dom.js";

/** Writes a text into a paragraph. parts: see `prose` of trace/prose.js. onFork(): called for a click on the fork. */
export function writeProse(node, parts, onFork) {
  node.replaceChildren(
    ...parts.map(({ text, kind, filled }) => {
      const how = filled ? ".sl-filled" : "";
      if (kind === "same") return h(`${filled ? "em" : "span"}${how}`, text);
      if (kind === "other") return h(`mark${how}`, text);
      const go = h(
        `button.sl-fork${how}`,
        { title: "Here the texts part: show both", onclick: onFork },
        text.trim() || "␣",
      );
      return h("span", text.match(/^\s*/)[0], go);
    }),
  );
}
