"""Benchmarks behind the project's documents, and the recorded schedule that they share."""
