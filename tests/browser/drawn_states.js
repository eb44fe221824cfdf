// The state of every cell of a lane (by its place) as its canvas shows it, by the colours of a few of its pixels. What is
// masked and what is masked and not computed differ in a dot only: both are 0.
(lane) => {
  const { stage } = surelock;
  const side = stage.sides.find((_, i) => i === lane);
  const { grid } = side;
  const pen = side.canvas.getContext("2d");
  const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const c = stage.colours;
  const looks = [
    [0, c.masked],
    [1, c.active],
    [2, c.locked],
    [2, c.lockedMark],
    [3, c.resting],
  ].map(([state, hex]) => [state, rgb(hex)]);
  return Array.from({ length: stage.trace.n }, (_, cell) => {
    const [x, y, w, h] = grid.rect(cell);
    const votes = [0, 0, 0, 0];
    for (const [dx, dy] of [
      [0.12, 0.3],
      [0.12, 0.5],
      [0.15, 0.7],
      [0.5, 0.16],
      [0.35, 0.16],
    ]) {
      const p = pen.getImageData(
        Math.round((x + w * dx) * grid.ratio),
        Math.round((y + h * dy) * grid.ratio),
        1,
        1,
      ).data;
      const far = looks
        .map(([state, [r, g, b]]) => [Math.hypot(p[0] - r, p[1] - g, p[2] - b), state])
        .sort((a, b) => a[0] - b[0]);
      votes[far[0][1]]++;
    }
    return votes.indexOf(Math.max(...votes));
  });
};
