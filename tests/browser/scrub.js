// Scrubs as fast as frames come; then times the drawing alone.
async () => {
  const { stage } = surelock;
  const { timeline } = stage;
  const frames = [];
  const draws = [];
  const last = timeline.last;
  const requests = performance.getEntriesByType("resource").length;
  let then = performance.now();
  let step = 0;
  const next = () => {
    step = (step + 37) % last;
    return step;
  };
  for (let i = 0; i < 300; i++) {
    timeline.scrubber.value = next();
    timeline.scrubber.dispatchEvent(new Event("input"));
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    frames.push(now - then);
    then = now;
  }
  const asked = performance.getEntriesByType("resource").length - requests;
  for (let i = 0; i < 60; i++) {
    timeline.step = next();
    const begun = performance.now();
    stage.redraw();
    draws.push(performance.now() - begun);
  }
  const at = (list, q) => list.slice(10).sort((a, b) => a - b)[Math.floor(q * (list.length - 11))];
  const mean = frames.slice(10).reduce((a, b) => a + b) / (frames.length - 10);
  return { fps: 1000 / mean, p95: at(frames, 0.95), draw: at(draws, 0.5), requests: asked };
};
