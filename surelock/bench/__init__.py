"""`bench decode`, and the parts that all benchmarks share: the subject, the timing, networks with random weights."""
