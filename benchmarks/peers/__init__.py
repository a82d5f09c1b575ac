"""Applications of the peers, all serving the same network; `benchmarks.catalog` says how each is started."""
