// What the first screen offers beside the race: Run, one's own words, the lessons.

import { h, setText } from "../dom.js";
import { page } from "../run/state.js";
import { stopButton } from "./controls.js";

const MOST_SAID = 80; // characters of the prompt: all of it would be the button's name

/** press(): Run; openForm(): the settings, with the focus on the prompt or not; lessons: the button that opens their list. */
export class Actions {
  constructor({ press, openForm, lessons }) {
    const button = (name, action, ...children) =>
      h("button", { type: "button", class: `sl-action sl-action-${name}`, onclick: action }, ...children);
    this.text = h("q", {});
    this.run = button("run", press, "Run");
    this.stop = button("stop", () => page.now.live.stop());
    this.node = h(
      "div",
      { class: "sl-actions", role: "group", "aria-label": "Run" },
      this.run,
      this.stop,
      button("prompt", () => openForm(true), h("span", {}, "Try your own words "), this.text),
      lessons,
      button("form", () => openForm(false), "Settings"),
    );
    page.follow(["prompt"], ({ prompt }) => setText(this.text, prompt.trim().slice(0, MOST_SAID)));
    page.follow(["phase", "wish", "waits", "place"], (now) => {
      const { text, disabled } = stopButton(now);
      setText(this.stop, text);
      this.stop.disabled = disabled;
      this.stop.hidden = now.phase === "idle" && disabled;
    });
  }
}
