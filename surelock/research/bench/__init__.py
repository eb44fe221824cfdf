"""The benchmarks beside the package's own `bench decode`."""
