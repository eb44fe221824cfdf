// The keyboard: the timeline's keys work anywhere on the stage; in a focused grid, arrow keys move over its cells.

const TYPING =
  "input:not([type=range]):not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable=true]";

const RUN = "#sl-run, #sl-run *";

/**
 * Lets Space, arrow keys, Home and End control the timeline, unless a focused field, button, grid or scrolling box
 * needs them. On the button Run, which has the focus after a click, Space plays and pauses, too, and never starts
 * another run.
 */
export function timelineKeys(timeline) {
  const keys = {
    " ": () => timeline.toggle(),
    ArrowLeft: () => timeline.move(-1),
    ArrowRight: () => timeline.move(1),
    Home: () => timeline.seek(0),
    End: () => timeline.seek(Infinity),
  };
  const listen = (event) => {
    const { target } = event;
    if (event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented || !keys[event.key]) return;
    if (target.matches?.(TYPING)) return;
    const onScrubber = target === timeline.scrubber;
    if (!onScrubber && target.matches?.("input, [role=slider], [role=tab], [role=listbox] *, [role=option]")) return;
    if (event.key !== " " && target.matches?.("[role=region][tabindex]")) return; // these keys scroll the box
    const run = event.key === " " && target.matches?.(RUN);
    if (!run && event.key === " " && target.matches?.("button, a, summary, [role=button]")) return;
    event.preventDefault();
    keys[event.key]();
  };
  const hold = (event) => {
    // Releasing the key would press the button.
    if (event.key === " " && event.target.matches?.(RUN)) event.preventDefault();
  };
  document.addEventListener("keydown", listen);
  document.addEventListener("keyup", hold);
  letterKeys({
    n: () => timeline.chapter(1),
    p: () => timeline.chapter(-1),
    s: () => timeline.setRace(!timeline.byClock),
  });
}

/** Listens for single keys, unless a field has the focus. keys: {f: action, "?": action}. */
export function letterKeys(keys) {
  const listen = (event) => {
    const action = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action || event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented) return;
    if (event.target.matches?.(TYPING) && event.key !== "Escape") return;
    action();
  };
  document.addEventListener("keydown", listen);
}

/**
 * Lets arrow keys move the focused cell of a grid, and Enter open its menu. cell(), columns(): return present values.
 */
export function gridKeys(canvas, { cell, count, columns, move, open }) {
  canvas.addEventListener("keydown", (event) => {
    const now = cell();
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns(), ArrowDown: columns() }[event.key];
    if (event.key === "Enter" && now >= 0) open(now);
    else if (event.key === "Home") move(0);
    else if (event.key === "End") move(count() - 1);
    else if (step !== undefined) {
      const next = now < 0 ? 0 : now + step;
      if (next >= 0 && next < count()) move(next);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
}
