"""Settings, unmasking, locking, the decode loop and its FLOPs.

This package sees text only through `lm.encode` and `lm.decode`.
"""
