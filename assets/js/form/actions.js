// What the first screen offers beside the race: Run, one's own words, the lessons.

import { h, isNarrow, setText } from "../dom.js";
import { page } from "../run/state.js";
import { stopButton } from "./controls.js";
import { promptBox } from "./prompt_box.js";

const MOST_SAID = 48; // characters of the prompt: all of it would be the button's name

const WHERE = { browser: "this browser", server: "this server" };

/** Where Run computes: a choice, and what each means in a word, where there are two for the form's model. */
export function where(decodes) {
  const options = page.now.sources.map((name) => h("option", { value: name }, ""));
  const change = ({ target }) => page.set({ source: target.value });
  const choice = h("select.sl-action-where", { "aria-label": "Where Run computes", onchange: change }, options);
  page.follow(["source", "place", "model", "typed"], ({ source: chosen, place, model, typed }) => {
    const source = typed && options.length > 1 ? "browser" : chosen; // a typed rule runs there alone
    choice.disabled = source !== chosen;
    choice.title = choice.disabled ? "A rule of your own runs in this browser" : "";
    const means = { browser: "at once", server: place ? `${place} before you` : "shared" };
    const told = (value) => (isNarrow() ? WHERE[value] : `${WHERE[value]} · ${means[value]}`);
    for (const option of options) setText(option, told(option.value));
    choice.value = source;
    choice.hidden = options.length < 2 || (model !== "" && !decodes(model));
  });
  return choice;
}

/** press(): Run; toggleForm(): the settings; lessons: the button that opens their list; decodes(model): whether a browser can. */
export function actions({ press, toggleForm, lessons, decodes }) {
  const box = promptBox();
  const button = (name, action, ...children) =>
    h(`button.sl-action.sl-action-${name}`, { onclick: action }, ...children);
  const text = h("q");
  const own = [h("span.sl-desk-only", "Try your own words "), h("span.sl-phone-only", "Your words"), text];
  const stop = button("stop", () => page.now.live.stop());
  const group = { role: "group", "aria-label": "Run" };
  const others = [button("prompt", () => box.toggle(), own), lessons, button("form", toggleForm, "Settings"), box.node];
  page.follow(["prompt"], ({ prompt }) => {
    const all = prompt.trim();
    setText(text, all.length > MOST_SAID ? `${all.slice(0, all.lastIndexOf(" ", MOST_SAID))} …` : all);
  });
  page.follow(["phase", "pending", "waits", "place"], (now) => {
    const { text: told, disabled } = stopButton(now);
    setText(stop, told);
    stop.disabled = disabled;
    stop.hidden = now.phase === "idle" && disabled;
  });
  return h("div.sl-actions", group, button("run", press, "Run"), where(decodes), stop, others);
}
