// How a position is called: by its word.

/** “forest” (34), or the words of several lanes that differ there: “forest” / “wood” (34). Masked everywhere: position 34.
 * of: the lanes that are asked, at(lane): after which of its steps. */
export function pinName(trace, cell, { of = trace.lanes, at = () => Infinity } = {}) {
  const tokens = of.filter(({ n }) => cell < n).map((lane) => lane.token(cell, at(lane)));
  const words = [...new Set(tokens.filter((token) => token >= 0))].map((token) => trace.word(token));
  return words.length ? `${words.join(" / ")} (${cell})` : `position ${cell}`;
}
