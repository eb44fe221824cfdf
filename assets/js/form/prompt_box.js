// The box for the visitor's prompt: a field, example openings, a line on what the model knows, and Run. The form has a
// field for the prompt, too, which gets the text that is typed here.

import { h, setText } from "../dom.js";
import { page } from "../run/state.js";
import { pressRun, toggleSidebar, writesLine } from "./controls.js";
import { refusalLine } from "./refusal.js";

const CHIP = 42; // the most characters of an opening on its button

/** Makes the box, closed at first: {node, toggle()}. */
export function promptBox() {
  const placeholder = "Begin a story, or leave blanks: Tom found a __ in the garden.";
  const field = h("textarea", { rows: 2, "aria-label": "Your words", placeholder });
  const chips = h("div.sl-chips", { role: "group", "aria-label": "Openings" });
  const knows = h("span");
  const run = h("button.sl-prompt-run", { onclick: () => pressRun() }, "Run");
  // A phone's bar lacks room.
  const settings = h("button.sl-small.sl-phone-only", { onclick: toggleSidebar }, "Settings");
  const foot = h("div.sl-prompt-foot", knows, settings, run);
  const node = h("div.sl-prompt-box", { hidden: true }, field, refusalLine(), writesLine(), chips, foot);
  const put = (text) => {
    const prompt = document.querySelector("#sl-prompt textarea");
    Object.assign(prompt, { value: text });
    window.surelock.addressing.touched = true;
    prompt.dispatchEvent(new Event("input", { bubbles: true }));
  };
  const toggle = (open = node.hidden) => {
    node.hidden = !open;
    if (open) field.focus();
  };
  const chip = (text) => {
    const label = text.length > CHIP ? `${text.slice(0, text.lastIndexOf(" ", CHIP))} …` : text;
    const onclick = () => {
      field.value = text;
      put(text);
      field.focus();
    };
    return h("button", { title: text, onclick }, label);
  };
  field.addEventListener("input", () => put(field.value));
  node.addEventListener("keydown", (event) => {
    event.stopPropagation(); // keys in the box must not move the cursor of the race
    if (event.key === "Escape") toggle(false);
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) pressRun();
  });
  page.follow(["prompt"], ({ prompt }) => {
    if (document.activeElement !== field) field.value = prompt;
  });
  page.follow(["examples"], ({ examples, knows: about }) => {
    chips.replaceChildren(...examples.map(chip));
    setText(knows, about && `This model knows ${about}.`);
  });
  page.follow(["phase"], ({ phase }) => phase === "running" && toggle(false));
  page.follow(["refused"], ({ refused }) => {
    if (refused?.field === "prompt" && !document.querySelector(".sidebar.open")) toggle(true);
  });
  return { node, toggle };
}
