"""Bytes <-> events of every protocol. No sockets, no clocks: everything here is tested without a loop.

Read in this order:

- `http1`: requests of one connection, heads and bodies.
- `head`: one request's head, with every strict rule.
- `target`: the one meaning of a path, and back to bytes.
- `frames`, `reader`: gateway <-> worker; bytes to frames.
"""
