// The actions beside the race on the first screen: Run, the prompt, the settings and the lessons.

import { h, setText } from "../dom.js";
import { page } from "../run/state.js";
import { stopButton } from "./controls.js";
import { promptBox } from "./prompt_box.js";

const MOST_SAID = 48; // the most characters of the prompt on a button, since a screen reader reads its whole text

/** Makes the actions. press(): starts a run. toggleForm(): opens the settings. lessons: the button of the lessons. */
export function actions({ press, toggleForm, lessons }) {
  const box = promptBox();
  const button = (name, action, ...children) =>
    h(`button.sl-action.sl-action-${name}`, { onclick: action }, ...children);
  const text = h("q");
  const promptNodes = [h("span.sl-action-own", "Try your own words"), text];
  const stop = button("stop", () => page.now.live.stop());
  const group = { role: "group", "aria-label": "Run" };
  const prompt = button("prompt", () => box.toggle(), promptNodes);
  page.follow(["prompt"], ({ prompt }) => {
    const all = prompt.trim();
    setText(text, all.length > MOST_SAID ? `${all.slice(0, all.lastIndexOf(" ", MOST_SAID))} …` : all);
  });
  page.follow(["phase", "pending", "waits", "place"], (now) => {
    const { text: label, disabled } = stopButton(now);
    setText(stop, label);
    stop.disabled = disabled;
    stop.hidden = now.phase === "idle" && disabled;
  });
  const run = button("run", press, "Run");
  return h("div.sl-actions", group, prompt, run, stop, lessons, button("form", toggleForm, "Settings"), box.node);
}
