// A link's settings come with the page's load event, and the stage listens only once its modules are there. Run pressed
// before that is kept, and pressed again when js/run/ready.js says so, or after a while: a press is never lost.
{
  const PATIENCE_MS = 6000;
  const AGAIN_MS = 500;
  const find = () => document.getElementById("sl-run");
  const label = (run) => {
    const texts = document.createTreeWalker(run, NodeFilter.SHOW_TEXT, (text) => (text.data.trim() ? 1 : 2));
    return texts.nextNode() ?? {}; // the node itself: replaced, Gradio would lose it
  };
  let said = null; // what the button says else, once it was pressed
  let ready = false;
  const hold = (event) => {
    const run = event.target.closest?.("#sl-run");
    if (!run) return;
    event.stopImmediatePropagation();
    event.preventDefault();
    if (said !== null) return;
    said = label(run).data;
    label(run).data = "Starting …";
    run.setAttribute("aria-busy", "true");
    window.surelock?.stage.say("Starting …"); // the button may be out of sight
    setTimeout(release, PATIENCE_MS);
  };
  const release = () => {
    if (ready) return;
    if (!window.surelock) return setTimeout(release, AGAIN_MS); // nobody would take it yet
    ready = true;
    removeEventListener("click", hold, true);
    const run = find();
    if (said === null || !run) return;
    label(run).data = said;
    run.removeAttribute("aria-busy");
    run.click();
  };
  addEventListener("click", hold, true);
  addEventListener("sl-ready", release);
}
