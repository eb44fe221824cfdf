// What of the page is in the first screen.
() => {
  const inside = (node) => {
    const { top, bottom, left, right, width, height } = node.getBoundingClientRect();
    const [w, h] = [Math.min(right, innerWidth) - Math.max(left, 0), Math.min(bottom, innerHeight) - Math.max(top, 0)];
    return width && height ? (Math.max(0, w) * Math.max(0, h)) / (width * height) : 0;
  };
  const covered = document.querySelector(".sl-dock").getBoundingClientRect();
  const shown = (node) =>
    node.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && inside(node) > 0.5;
  const grids = [...document.querySelectorAll("canvas.sl-grid")].map((grid) => {
    const { top, bottom } = grid.getBoundingClientRect();
    return (Math.min(bottom, covered.top, innerHeight) - Math.max(top, 0)) / (bottom - top);
  });
  const parts = [".sl-narrator", ".sl-key", ".sl-work", ".sl-changed", ".sl-play", ".sl-action-run", "#sl-title h1"];
  const kinds = "button, a[href], input, select, textarea, summary, [tabindex]:not([tabindex='-1'])";
  const tabbed = [...document.querySelectorAll(kinds)].filter(
    (node) => shown(node) && !node.disabled && !node.closest("[inert]"),
  );
  const words = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const node = text.parentElement;
    if (node.closest("script, style, option, .sl-hidden, .sl-narrator-room") || !text.data.trim() || !shown(node))
      continue;
    const range = document.createRange();
    range.selectNodeContents(text);
    const { top, height } = range.getBoundingClientRect();
    if (height && top < innerHeight) words.push(...(text.data.match(/\p{L}[\p{L}\p{N}’'-]*/gu) ?? []));
  }
  const sizes = surelock.stage.sides.flatMap(({ grid }) =>
    [...grid.fits].map(([, { size, lines }]) => [size, lines.length]),
  );
  return {
    grids,
    missing: parts.filter((part) => inside(document.querySelector(part)) < 0.99),
    focusable: tabbed.length,
    words,
    smallest: Math.min(...sizes.filter(([, lines]) => lines === 1).map(([size]) => size)),
    split: sizes.filter(([, lines]) => lines > 1).length / sizes.length,
    beneath: document.querySelector(".sl-dock + .sl-lower").clientHeight > 300,
    scrolls: scrollY,
    wide: document.documentElement.scrollWidth - innerWidth,
  };
};
