// Pause / Resume, Step and Stop beside the Run button. What they do is live.js's business.

import { listen, tell } from "./bus.js";
import { h, setText } from "./dom.js";
import "./ready.js";

const NARROW = "(max-width: 768px)";

/** Gradio's own toggle of the sidebar: on a narrow screen the sidebar lies over the stage. */
export function closeSidebarIfNarrow() {
  if (!matchMedia(NARROW).matches) return;
  const sidebar = document.querySelector(".sidebar.open");
  sidebar?.querySelector(".toggle-button")?.click();
}

/** Opens the sidebar where it is closed, and leads the focus to it. */
export function openSidebar() {
  const toggle = document.querySelector(".sidebar .toggle-button");
  if (!document.querySelector(".sidebar.open")) toggle?.click();
  toggle?.focus();
}

/** Presses the form's Run; where the form holds it back, it is the form that says why. */
export function pressRun() {
  const run = document.getElementById("sl-run");
  if (!run || run.disabled) openSidebar();
  else run.click();
}

export function connect({ element }) {
  const button = (name, text, action) =>
    h("button", { type: "button", class: `sl-control sl-control-${name}`, disabled: true, onclick: action }, text);
  let state = "idle";
  let waiting = false; // for the device
  let wish = null; // "pause" or "stop", until it has worked
  const pause = button("pause", "Pause", () => tell(state === "paused" ? "resume" : "pause"));
  const step = button("step", "Step", () => tell("step"));
  const stop = button("stop", "Stop", () => tell("stop"));
  element.querySelector(".sl-controls").replaceChildren(pause, step, stop);
  const draw = () => {
    const [pauses, stops] = [state === "paused" ? "Resume" : "Pause", waiting ? "Cancel" : "Stop"];
    setText(pause, wish === "pause" ? "Pausing …" : pauses);
    setText(stop, wish === "stop" ? "Stopping …" : stops);
    pause.disabled = state === "idle" || wish !== null;
    stop.disabled = (state === "idle" && !waiting) || wish === "stop";
    step.disabled = wish !== null;
    for (const [name, node] of Object.entries({ pause, stop })) node.classList.toggle("sl-wished", wish === name);
  };
  listen("state", (now) => {
    state = now;
    draw();
  });
  listen("waiting", (now) => {
    waiting = now;
    draw();
  });
  listen("wish", (now) => {
    wish = now;
    draw();
  });
  document.addEventListener(
    "click",
    (event) => {
      if (!event.target.closest?.("#sl-run")) return;
      const press = { refused: false };
      tell("run", press);
      if (press.refused) {
        event.preventDefault();
        event.stopImmediatePropagation();
      }
      closeSidebarIfNarrow();
    },
    true,
  );
  tell("controls");
}
