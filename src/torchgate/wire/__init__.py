"""Bytes <-> events of every protocol. No sockets, no clocks: everything here is tested without a loop.

Read in this order:

- `http1`: requests of one connection, heads and bodies.
- `head`: one request's head, with every strict rule.
- `head_faults`: what is wrong with a head that is refused.
- `body`: what comes behind a head, of requests and answers.
- `answer`: one answer's head, as strictly.
- `response`: answers of one upstream connection, heads and bodies.
- `tls_context`: TLS towards endpoints.
- `client_hello`: the name a TLS client asks for.
- `proxy_protocol`: what a proxy in front says about the client.
- `forwarded`: what proxies say of a client in header fields, and what upstreams are told.
- `target`: the one meaning of a path, and back to bytes.
- `frames`, `reader`: gateway <-> worker; bytes to frames.
"""
