"""The gateway's side of pools of other servers. Knows nothing of `torchgate.inference`, nor of `torchgate.gateway`.

Read in this order:

- `transfer`: the seam: a request to a pool, and whom its answer goes to.
- `request`: what is asked of a pool.
- `forward`: all pools of a gateway: what the proxy handler knows.
- `pool`: one pool: its limits, kept connections, what waits, and the sweep.
- `pool_transfer`: one request on its way through a pool: which tries there are, and what its caller is told.
- `retry`, `hedge`: when there is a second try, and what it may cost.
- `attempt`: one try at one endpoint: its times and its outcome.
- `connection`: one connection: requests out, answers in.
- `tunnel`: a connection that has left HTTP.
- `opening`, `tls`: new connections, and why there is none.
- `idle`: how long endpoints keep idle connections, learned.
- `cluster`: who is in a pool, and which endpoint gets the next request.
- `balancer`: the policies: which of the usable endpoints is chosen.
- `outlier`: passive signals: which endpoints behave unlike what a pool needs.
- `endpoint`: one endpoint: its connections, what is under way, what was learned.
- `outcome`: what became of one try at one endpoint.
- `meters`: the values of pools in the gateway's counter block.
"""
