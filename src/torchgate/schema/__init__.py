"""Frozen data that processes exchange or users write.

Read in this order:

- `target`: what a user means by a TARGET; the one module here that looks at files.
- `config`: what to serve, where, within which limits.
- `routes`: what answers which requests, and how.
- `pools`: upstream endpoints.
- `front`: routes, pools, hosts and certificates together.
- `descriptors`: what a gateway needs of file descriptors, and what is left for clients.
- `serve`: all of it: one service.
- `messages`: what the supervisor, gateways and workers tell each other.
- `signature`: what a served model takes and gives.
- `datatypes`: the tensor datatypes of the Open Inference Protocol.
- `problem`: an error as an HTTP answer.
- `words`: counts in sentences.
- `amounts`: sizes, durations and versions as people write them.
- `document`: the configuration file, and its way to `serve`.
"""
