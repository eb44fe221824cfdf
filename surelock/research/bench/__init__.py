"""The benchmarks, and what they share."""
