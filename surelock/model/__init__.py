"""The network, its cache, and where weights come from. Knows nothing of decoding."""
