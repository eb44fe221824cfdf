// The buttons Pause / Resume, Step and Stop beside the button Run.

import { h, setText } from "../dom.js";
import { page } from "../run/state.js";
import { foreignText, warningOf } from "../run/wording.js";
import { toWrite } from "../trace/blanks.js";
import { followRefusals } from "./refusal.js";
import { where } from "./where.js";

const FOCUS_MS = 50;
const NARROW = "(max-width: 768px)";

/** Closes the sidebar on a narrow screen, where it covers the stage. */
export function closeSidebarIfNarrow() {
  if (!matchMedia(NARROW).matches) return;
  const sidebar = document.querySelector(".sidebar.open");
  sidebar?.querySelector(".toggle-button")?.click();
}

/** Opens the sidebar and moves the focus there, or closes it and moves the focus back. */
export function toggleSidebar() {
  const toggle = document.querySelector(".sidebar .toggle-button");
  const back = document.querySelector(".sidebar.open") && document.querySelector(".sl-action-form");
  toggle?.click();
  setTimeout(() => (back || toggle)?.focus(), FOCUS_MS); // after the sidebar has moved
}

/** Escape closes the sidebar, unless a list in it is open. */
function closeByEscape({ key, target }) {
  const busy = target.closest?.("dialog, [role=combobox][aria-expanded=true]");
  if (key === "Escape" && !busy && document.querySelector(".sidebar.open")) toggleSidebar();
}

/** Keeps Tab out of the closed sidebar, which Gradio only moves out of sight. */
function keepInert() {
  const sidebar = document.querySelector(".sidebar");
  if (!sidebar) return;
  const follow = () => {
    page.set({ form: sidebar.classList.contains("open") });
    for (const part of sidebar.children)
      if (!part.matches(".toggle-button")) part.inert = !sidebar.classList.contains("open");
  };
  new MutationObserver(follow).observe(sidebar, { attributeFilter: ["class"] });
  follow();
}

/** Lets Tab leave a list. Gradio 6.31 opens a list at every key, also at Tab; such a list would stay open. */
function leaveListsByTab() {
  const keep = (event) => event.key === "Tab" && event.target.matches("[role=combobox]") && event.stopPropagation();
  document.querySelector(".sidebar")?.addEventListener("keydown", keep, true);
}

/** Presses the form's button Run. If the button is disabled, opens the form, which shows the reason. */
export function pressRun() {
  const run = document.getElementById("sl-run");
  if (!run || run.disabled) document.querySelector(".sidebar.open") || toggleSidebar();
  else run.click();
}

/** Whether a waiting request can be cancelled. A paused run's request for a step can only be cancelled in a queue. */
const canCancel = ({ waits, place }) => waits !== null && (waits !== "more" || place > 0);

/** The text of the button that ends a run, and whether it can be pressed. */
export function stopButton(now) {
  const waits = canCancel(now);
  const stops = waits ? "Cancel" : "Stop";
  const stopping = now.pending === "stop";
  return { text: stopping ? "Stopping …" : stops, disabled: stopping || (now.phase === "idle" && !waits) };
}

/** Makes a line that describes what Run will write, and warns of the result. */
export function writesLine() {
  const line = h("p.sl-writes", { "aria-live": "polite" });
  const parts = ["prompt", "length", "steps", "temperature", "foreign", "rare", "tooLong"];
  page.follow(parts, (now) => {
    const written = [toWrite(now.prompt, now.length), warningOf(now)].filter(Boolean).join(" ");
    setText(line, now.tooLong || (now.foreign ? foreignText() : written));
  });
  return line;
}

/** Fills the component of the controls. */
export function connect({ element }) {
  const button = (name, action) => h(`button.sl-control.sl-control-${name}`, { disabled: true, onclick: action });
  const pause = button("pause", () => page.now.live[page.now.phase === "paused" ? "resume" : "pause"]());
  const step = button("step", () => page.now.player.move(1));
  const stop = button("stop", () => page.now.live.stop());
  element.querySelector(".sl-controls").replaceChildren(pause, step, stop, where());
  setText(step, "Step");
  page.follow(["arrived"], ({ arrived }) => {
    const prompt = document.getElementById("sl-prompt"); // the field may be created after these buttons
    if (arrived && prompt?.querySelector(".sl-writes") === null) prompt.append(writesLine());
  });
  keepInert();
  followRefusals(() => document.querySelector(".sidebar.open") || toggleSidebar());
  document.addEventListener("keydown", closeByEscape);
  leaveListsByTab();
  page.follow(["live", "phase", "pending", "waits", "place"], ({ live, phase, pending }) => {
    const { text, disabled } = stopButton(page.now);
    const pauses = phase === "paused" ? "Resume" : "Pause";
    setText(pause, pending === "pause" ? "Pausing …" : pauses);
    setText(stop, text);
    pause.disabled = phase === "idle" || pending !== null;
    stop.disabled = disabled;
    step.disabled = !live || pending !== null;
    for (const [name, node] of Object.entries({ pause, stop })) node.classList.toggle("sl-wished", pending === name);
  });
}
