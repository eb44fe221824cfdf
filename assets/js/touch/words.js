// The names of tokens in a menu in which one of them is chosen.

/**
 * Names of tokens, no two of which are equal. A name is the word of a token. If words are equal, the space before
 * them is shown, and if they are still equal, the numbers of the tokens.
 */
export function wordsApart(ids, pieces) {
  const plain = ids.map((id) => pieces.name(id));
  const alone = (names, i) => names.filter((name) => name === names[i]).length === 1;
  const bare = plain.map((name) => name.trim());
  const spaced = plain.map((name) => name.replace(/^ (?=\S)/, "␣"));
  return ids.map((id, i) => {
    if (alone(bare, i)) return bare[i];
    return alone(spaced, i) ? spaced[i] : `${spaced[i]} #${id}`;
  });
}

/** The index in a prompt's text at which the token of a position begins. */
export function placeInPrompt(trace, text, position) {
  let at = 0;
  for (let p = 0; p < position; p++) {
    if (!trace.given[p]) continue;
    const piece = trace.pieces.name(trace.header.prompt_tokens[p]).trim();
    const start = piece ? text.indexOf(piece, at) : -1;
    if (start >= 0) at = start + piece.length;
  }
  const word = trace.pieces.name(trace.header.prompt_tokens[position]).trim();
  return Math.max(at, word ? text.indexOf(word, at) : at);
}
