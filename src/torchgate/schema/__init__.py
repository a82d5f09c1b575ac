"""Frozen data that processes exchange or users write; no I/O.

Read in this order:

- `config`: what to serve, where, within which limits.
- `messages`: what the supervisor, gateways and workers tell each other.
- `signature`: what a served model takes and gives.
- `datatypes`: the tensor datatypes of the Open Inference Protocol.
- `problem`: an error as an HTTP answer.
"""
