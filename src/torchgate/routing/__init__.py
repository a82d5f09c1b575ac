"""From a request to its route, and what a route does to paths and fields.

Pure, the same for the gateway and ``explain``: no sockets, no clocks, no configuration file; it works on the frozen
objects of `torchgate.schema.routes`. Read in this order:

- `table`: routes by host, path, method, header fields and query; the most specific one first.
- `template`: texts with placeholders.
- `edits`: set, add and remove header fields.
- `rewrite`: paths on their way to an action.
"""
