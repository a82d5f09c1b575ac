"""The gateway process: clients' HTTP in front, workers' frames behind. No torch, no user code, no blocking I/O.

Read in this order:

- `__main__`: the entry point.
- `server`: the process; control link, tick, drain.
- `acceptor`: takes connections off a socket, and pauses without descriptors.
- `listener`: one address, its limits and its open connections.
- `clients`: connections by client address.
- `entrance`: who the client is, by the PROXY protocol.
- `scopes`: certificate, client CA and ticket keys by host.
- `tls`: TLS between a socket and its connection.
- `identity`: what upstreams are told of a client's certificate.
- `gate`: what is asked of every request to a host.
- `connection`: one client connection, its events and its ends.
- `receive`: its reading half.
- `bodies`: bodies of requests, gathered or passed on.
- `transmit`: its answering half: framing.
- `sending`: what leaves when, and how a connection ends.
- `deadlines`: what a connection must not take too long for.
- `exchange`: one request and its answer, as handlers see them.
- `sink`: what an exchange answers into, as an interface.
- `spool`: answers that wait for slow clients.
- `tunnel`: connections that left HTTP.
- `placeholders`: values of placeholders for the exchange at hand.
- `router`: from a target to a route.
- `snapshot`: what is served, immutable; what handlers are given.
- `handlers`: what answers each path.
- `middleware`: what every answer passes, whatever its handler.
- `files`: files beneath a directory, found and sent without the disk ever holding the loop.
- `error_pages`: what is sent in place of an error.
- `pages`, `stored`: files answered from memory, with ETag and 304.
- `respond`, `compress`: heads of answers; compression.
- `questions`: texts only the supervisor can make.
- `shared`, `meters`: what connections share; the gateway's metrics.
"""
