"""Settings, unmasking, locking, the decode loop and its FLOPs. Knows text only through lm.encode and lm.decode."""
