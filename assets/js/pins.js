// How a pinned position is called: by its word.

/** “forest” (34), or the words of several lanes that differ there: “forest” / “wood” (34). Masked everywhere: position 34. */
export function pinName({ lanes, pieces }, cell) {
  const tokens = lanes.filter(({ n }) => cell < n).map((lane) => lane.token(cell, lane.count - 1));
  const words = [...new Set(tokens.filter((token) => token >= 0))].map((token) => `“${pieces.name(token).trim()}”`);
  return words.length ? `${words.join(" / ")} (${cell})` : `position ${cell}`;
}
