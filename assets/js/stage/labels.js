// The labels of a lane's cells after a step: tokens, and for masked cells faint guesses, the tokens that the model
// would write now.

const LEAST = 0.2; // the least probability of a guess that is drawn

/**
 * The guess at a position that a step left masked: [token, probability].
 * Null if the position is written, or if the step did not compute it.
 */
export function guessAt(lane, cell, t) {
  const at = t * lane.n + cell;
  const token = t < 0 ? -1 : lane.guesses[at];
  return token < 0 || lane.token(cell, t) >= 0 ? null : [token, lane.confidence[at]];
}

/**
 * {tokens, list, faint}: the tokens of all positions, their labels, and the levels of their guesses:
 * 1 to 4 by probability, 0 for a written token and for a guess that is too unlikely to be drawn.
 */
export function labelsOf({ pieces }, lane, t, guesses) {
  const tokens = lane.tokens(t);
  const list = pieces.labels(tokens);
  const faint = new Uint8Array(lane.n);
  if (!guesses) return { tokens, list, faint };
  const cellGuesses = Array.from(tokens, (_, p) => guessAt(lane, p, lane.clamp(t)));
  const words = pieces.labels(cellGuesses.map((guess) => guess?.[0] ?? -1));
  for (const [p, guess] of cellGuesses.entries()) {
    const isLikely = guess !== null && guess[1] >= LEAST;
    if (!isLikely) continue;
    list[p] = words[p];
    faint[p] = 1 + Math.min(3, Math.floor(4 * guess[1]));
  }
  return { tokens, list, faint };
}
