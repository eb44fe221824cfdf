// Four lanes race at most: whoever asks for a fifth chooses which of them it replaces.

import { h } from "../dom.js";
import { replaceable } from "../run/branching.js";

export class MakeRoom {
  constructor() {
    this.node = h("div.sl-room", { role: "group", "aria-label": "Which lane makes room", hidden: true });
  }

  /**
   * Starts a lane at once where there is room, else once a person has chosen the lane that it replaces.
   * Returns what start returns, or "" where the choice is still to come; say gets it after the choice.
   * @param {Trace} trace
   * @param {Lane} parent
   * @param {(gone: Lane | null) => string} start gone makes room; returns a sentence why not, or ""
   * @param {(why: string) => void} say
   */
  ask(trace, parent, start, say) {
    const lanes = replaceable(trace, parent);
    this.node.hidden = !lanes.length;
    if (!lanes.length) return start(null);
    const asker = document.activeElement;
    const choose = (gone) => {
      asker.focus({ preventScroll: true }); // where it was before the choice
      this.node.hidden = true;
      if (gone) say(start(gone));
    };
    const button = (text, gone) => h("button.sl-small", { onclick: () => choose(gone) }, text);
    this.node.replaceChildren(
      h("p", { role: "status" }, "Four lanes race already. Which one makes room?"),
      ...lanes.map((lane) => button(`Replace “${lane.name}”`, lane)),
      button("Keep them", null),
    );
    this.node.querySelector("button").focus();
    return "";
  }

  close() {
    this.node.hidden = true;
  }
}
