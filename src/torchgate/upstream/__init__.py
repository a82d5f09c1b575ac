"""The gateway's side of pools of other servers. Knows nothing of `torchgate.inference`, nor of `torchgate.gateway`.

Read in this order:

- `transfer`: the seam: a request to a pool, and whom its answer goes to.
"""
