// At most four lanes race. A person who asks for a fifth lane chooses which lane it replaces.

import { h } from "../dom.js";
import { replaceable } from "../run/branching.js";

/** The question which lane makes room. */
export class MakeRoom {
  constructor() {
    this.node = h("div.sl-room", { role: "group", "aria-label": "Which lane makes room", hidden: true });
  }

  /**
   * Starts a lane at once if there is room, else after a person has chosen the lane that it replaces.
   * Returns the result of `start`, or "" if the person has to choose first. After the choice `say` gets the result.
   * @param {Trace} trace
   * @param {Lane} parent
   * @param {(gone: Lane | null) => string} start starts a lane in place of `gone`; returns the reason why it
   *   cannot, or ""
   * @param {(why: string) => void} say
   */
  ask(trace, parent, start, say) {
    const lanes = replaceable(trace, parent);
    this.node.hidden = !lanes.length;
    if (!lanes.length) return start(null);
    const asker = document.activeElement;
    const choose = (gone) => {
      asker.focus({ preventScroll: true }); // the focus returns to where it was before the choice
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
