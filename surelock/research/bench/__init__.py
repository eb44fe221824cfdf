"""The benchmarks beside the package's own `bench decode`: `bench steps`, `profile`, `llada`, `gpu`, `table`."""
