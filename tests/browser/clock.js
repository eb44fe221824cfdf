// Notes when the page has loaded, when the stage first moves, when Run is pressed, when the first live step is there and when
// the last one: what the server measures after it is told apart.
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
    watch("end", () => window.surelock.live.run?.trace.complete);
  },
  true,
);
