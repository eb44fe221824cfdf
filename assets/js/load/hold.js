// A link's settings come with the page's load event, the stage listens only once its modules are there, and the form may
// come after the stage. Run pressed before that, the form's or the one beside the race, is kept, and pressed again when
// js/run/live.js says so, or after a while: a press is never lost.
{
  const PATIENCE_MS = 6000;
  const AGAIN_MS = 500;
  const RUNS = ["#sl-run", ".sl-action-run"];
  const label = (run) => {
    const texts = document.createTreeWalker(run, NodeFilter.SHOW_TEXT, (text) => (text.data.trim() ? 1 : 2));
    return texts.nextNode() ?? {}; // the node itself: replaced, Gradio would lose it
  };
  let pressed = null; // which of them
  let said = ""; // what it says else
  let ready = false;
  const hold = (event) => {
    const which = RUNS.find((each) => event.target.closest?.(each));
    if (!which) return;
    event.stopImmediatePropagation();
    event.preventDefault();
    if (pressed) return;
    pressed = which;
    const run = document.querySelector(which);
    said = label(run).data;
    label(run).data = "Starting …";
    run.setAttribute("aria-busy", "true");
    setTimeout(release, PATIENCE_MS);
  };
  const release = () => {
    if (ready) return;
    if (!window.surelock) return setTimeout(release, AGAIN_MS); // nobody would take it yet
    ready = true;
    removeEventListener("click", hold, true);
    const run = pressed && document.querySelector(pressed);
    if (!run) return;
    label(run).data = said;
    run.removeAttribute("aria-busy");
    run.click();
  };
  addEventListener("click", hold, true);
  addEventListener("sl-ready", release);
}
