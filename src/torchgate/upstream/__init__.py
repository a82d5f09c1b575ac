"""The gateway's side of other servers. Room prepared: nothing here yet.

Will hold forwarding to HTTP upstreams: forward, retry, cluster, balancer, outlier, health, pool, connection, endpoint.
Knows nothing of `torchgate.inference`.
"""
