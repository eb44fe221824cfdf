// Notes when the page has loaded, when the stage first moves, when Run is pressed, when the first live step is there and when
// the run has ended.
window.seen = {};
addEventListener("load", () => {
  seen.load = performance.now();
});
const watch = (name, condition) => {
  const poll = () => {
    if (condition()) seen[name] = performance.now();
    else setTimeout(poll, 4);
  };
  poll();
};
watch("moves", () => Number(document.querySelector(".sl-stage")?.dataset.step) >= 1);
addEventListener(
  "click",
  (event) => {
    if (!event.target.closest("#sl-run")) return;
    seen.run = performance.now();
    watch("step", () => window.surelock.live.run?.trace.count);
    const { root } = window.surelock.stage;
    const ended = new MutationObserver(() => {
      if (root.dataset.state === "running") seen.end = undefined;
      else seen.end ??= performance.now();
    });
    ended.observe(root, { attributeFilter: ["data-state"] });
  },
  true,
);
