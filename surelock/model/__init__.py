"""The network, checkpoint families, loading of weights, and the tokenizer."""
