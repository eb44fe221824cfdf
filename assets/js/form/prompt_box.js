// The visitor's prompt: one field, openings to begin with, what the model knows, and Run. The form has the same prompt
// among its settings, and holds what is typed into this field.

import { h, setText } from "../dom.js";
import { page } from "../run/state.js";
import { pressRun, toggleSidebar, writesLine } from "./controls.js";
import { refusalLine } from "./refusal.js";

const CHIP = 42; // characters of an opening on its chip

/** {node, toggle()}: the box, shut at first. */
export function promptBox() {
  const placeholder = "Begin a story, or leave blanks: Tom found a __ in the garden.";
  const field = h("textarea", { rows: 2, "aria-label": "Your words", placeholder });
  const chips = h("div.sl-chips", { role: "group", "aria-label": "Openings" });
  const knows = h("span");
  const run = h("button.sl-prompt-run", { onclick: () => pressRun() }, "Run");
  const settings = h("button.sl-small.sl-phone-only", { onclick: toggleSidebar }, "Settings"); // the bar has no room
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
    event.stopPropagation(); // its keys are no player's
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
