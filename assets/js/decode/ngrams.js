// Prevents repeated n-grams (the setting `no_repeat_ngram_size`, as in transformers) for tokens written in any order.

/**
 * The pairs [position, token] that would make an n-gram of `size` tokens occur twice in the sequence.
 * They are in order of position, then of token, without repetitions. tokens, masked: [N], prompt included.
 */
export function repeatingTokens(tokens, masked, size) {
  const windows = [];
  for (let start = 0; start + size <= tokens.length; start++) {
    const masks = masked.subarray(start, start + size);
    const hole = masks.indexOf(1);
    if (hole === masks.lastIndexOf(1)) windows.push({ start, hole });
  }
  const pairs = new Map();
  for (const { start, hole } of windows) {
    if (hole < 0) continue;
    const position = start + hole;
    for (const other of windows) {
      // The other n-gram is complete, or the same token completes both n-grams ("so so _ so so").
      if (other.start === start || (other.hole >= 0 && other.start + other.hole !== position)) continue;
      if (!alike(tokens, masked, start, other.start, size)) continue;
      const token = tokens[other.start + hole];
      if (other.hole >= 0 && tokens[start + other.hole] !== token) continue;
      pairs.set(`${position} ${token}`, [position, token]);
    }
  }
  return [...pairs.values()].sort(([p, t], [q, u]) => p - q || t - u);
}

function alike(tokens, masked, a, b, size) {
  for (let k = 0; k < size; k++) if (tokens[a + k] !== tokens[b + k] && !masked[a + k] && !masked[b + k]) return false;
  return true;
}
