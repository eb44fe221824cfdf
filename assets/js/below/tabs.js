// Tabs by the ARIA pattern: arrow keys change the tab, and all tabs together are one stop of the Tab key.

import { h } from "../dom.js";

/** Makes tabs. panels: [[name, node, onOpen?], ...]. label: the accessible name of the list of tabs. */
export function tabs(panels, label) {
  const buttons = panels.map(([name], i) => {
    const tab = { role: "tab", id: `sl-tab-${name}`, "aria-controls": `sl-panel-${name}`, onclick: () => open(i) };
    return h("button", tab, name);
  });
  const boxes = panels.map(([name, node]) =>
    h("div.sl-panel", { role: "tabpanel", id: `sl-panel-${name}`, "aria-labelledby": `sl-tab-${name}` }, node),
  );
  const list = h("div.sl-tablist", { role: "tablist", "aria-label": label }, buttons);
  list.addEventListener("keydown", (event) => {
    const now = buttons.indexOf(document.activeElement);
    const last = buttons.length - 1;
    const targets = { ArrowRight: now === last ? 0 : now + 1, ArrowLeft: now ? now - 1 : last, Home: 0, End: last };
    const next = targets[event.key];
    if (now < 0 || next === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    open(next);
    buttons[next].focus();
  });
  function open(which) {
    buttons.forEach((button, i) => {
      button.setAttribute("aria-selected", i === which);
      button.tabIndex = i === which ? 0 : -1;
      boxes[i].hidden = i !== which;
    });
    panels[which][2]?.();
  }
  open(0);
  return { node: h("section.sl-tabs", list, boxes), open };
}
