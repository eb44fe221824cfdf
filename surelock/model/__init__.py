"""The network, checkpoint families, loading and the tokenizer. Knows nothing of decoding."""
