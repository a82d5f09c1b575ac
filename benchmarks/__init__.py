"""Peers and limits: one command, one table, all rows from one run (``python -m benchmarks``).

In reading order:

- ``__main__``: the command line; runs the sections and prints the table
- ``sections/``: what is measured: ``mlp``, ``nets``, ``startup``, ``idle``
- ``report``: rows, ratios, targets, the table
- ``catalog``: the servers under test and how each is started
- ``payloads``: requests and the check of their answers
- ``load``: rounds of wrk over several servers in turn, and what they add up to
- ``processes``: a started server, its CPU time and memory by role
- ``bare``: torch in a loop without a server, the reference of the nets
- ``environments``: virtual environments of the peers
- ``floor``: the least a gateway and a worker can cost
- ``hotspots``: py-spy on the gateway and the worker under load
"""
