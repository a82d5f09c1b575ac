"""The gateway's side of pools of other servers. Knows nothing of `torchgate.inference`, nor of `torchgate.gateway`.

Read in this order:

- `transfer`: the seam: a request to a pool, and whom its answer goes to.
- `cluster`: who is in a pool, and which endpoint gets the next request.
- `balancer`: the policies: which of the usable endpoints is chosen.
- `outlier`: passive signals: which endpoints behave unlike what a pool needs.
- `endpoint`: one endpoint: its connections, what is under way, what was learned.
- `outcome`: what became of one try at one endpoint.
- `meters`: the values of pools in the gateway's counter block.
"""
