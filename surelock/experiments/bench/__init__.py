"""The benchmarks: `surelock bench decode`, `bench llada` and `bench table`, each in a module of its own."""
