// All numbers and sentences that the first screen shows, as they can be read there.
() => {
  const { stage } = surelock;
  const texts = (selector, within = document) => [...within.querySelectorAll(selector)].map((node) => node.textContent);
  const visible = (node) => Boolean(node?.checkVisibility());
  const scale = (node) => Number(node.style.transform.match(/scaleX\(([\d.]+)\)/)[1]);
  const chart = (key) =>
    texts(".sl-chart-value > :last-child", document.querySelector(`.sl-chart-${key}`).closest("figure"));
  const painted = ({ raster: { canvas } }, column) =>
    column < canvas.width && canvas.getContext("2d").getImageData(column, 0, 1, 1).data[3] > 0;
  const { step } = surelock.page.now;
  const counts = (selector) => {
    const node = document.querySelector(selector);
    const several = texts(".sl-number-lane > :last-child", node);
    return several.length ? several : [node.querySelector(".sl-number").textContent];
  };
  return {
    step,
    label: document.querySelector(".sl-step-label").textContent,
    work: [...document.querySelectorAll(".sl-work-row")].map((row) => ({
      name: row.querySelector(".sl-work-name").textContent,
      share: row.querySelector(".sl-work-share").textContent,
      bar: scale(row.querySelector(".sl-work-bar")),
    })),
    changed: counts(".sl-changed"),
    of: document.querySelector(".sl-number-of").textContent,
    others: visible(document.querySelector(".sl-others")) ? counts(".sl-others") : [],
    kl: chart("kl"),
    saved: chart("saved"),
    sides: stage.sides.map((side) => ({
      id: side.lane.id,
      clock: texts(".sl-lane-clock > span", side.node),
      grid: side.canvas.getAttribute("aria-label"),
      here: painted(side, step),
      beyond: painted(side, step + 1),
    })),
    sentence: document.querySelector(".sl-narrator").textContent,
    about: stage.teller.told?.step ?? null,
    verdict: visible(document.querySelector(".sl-verdict")) ? texts(".sl-verdict-work, .sl-verdict-time") : null,
  };
};
