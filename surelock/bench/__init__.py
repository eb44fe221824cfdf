"""`bench decode`, and what every benchmark has: its subject, its timing, networks of random weights."""
