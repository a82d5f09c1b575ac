"""Networks of the benchmark, as files that ``torchgate serve`` takes: ``mlp``, ``mobilenet``, ``encoder``."""
