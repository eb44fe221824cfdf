// What tokens are called where one of them is chosen.

/** What tokens are called, each another: by their words, a space before them where that tells them apart, else by their
 * numbers, too. */
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

/** The place in a prompt's text where the token at a position stands. */
export function placeInPrompt(trace, text, position) {
  let at = 0;
  for (let p = 0; p < position; p++) {
    if (!trace.given[p]) continue;
    const piece = trace.pieces.name(trace.header.prompt_tokens[p]).trim();
    const found = piece ? text.indexOf(piece, at) : -1;
    if (found >= 0) at = found + piece.length;
  }
  const word = trace.pieces.name(trace.header.prompt_tokens[position]).trim();
  return Math.max(at, word ? text.indexOf(word, at) : at);
}
