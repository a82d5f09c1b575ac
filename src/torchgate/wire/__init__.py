"""Bytes to events and back; no sockets, no clocks.

Read in this order:

- `http1`: HTTP/1.1 between a client and a gateway.
- `frames`: frames between a gateway and a worker.
"""
