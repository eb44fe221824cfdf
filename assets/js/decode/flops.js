// Algorithmic FLOPs (Sec. 2.4 of the paper): matrix products of the blocks only. The output head, norms, rotary
// embeddings and softmax are not counted, as in the paper.

/** FLOPs of computing one row of a sequence of `length` positions in all layers. */
export function rowFlops(config, length, { probed = false } = {}) {
  const { d_model: d, n_heads, n_kv_heads, head_size, d_ff, n_layers } = config;
  const width = n_heads * head_size;
  const keysValues = probed ? 0 : 4 * d * n_kv_heads * head_size;
  return n_layers * (4 * length * width + 4 * d * width + keysValues + 6 * d * d_ff);
}
