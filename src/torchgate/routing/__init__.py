"""From a request to its route, and what a route does to paths and fields. Room prepared.

Pure, the same for the gateway and ``explain``: no sockets, no clocks, no configuration file; it works on the frozen
objects of `torchgate.schema.routes`.
"""
