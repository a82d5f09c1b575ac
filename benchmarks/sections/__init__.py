"""What is measured, one module a section; each has ``measure(plan) -> list[Row]``.

- ``plan``: what a section is given: folder, lengths, peers; starting and checking servers
- ``mlp``: a small network as JSON against the peers, and as binary tensors against our own JSON
- ``nets``: a convolution net and a transformer encoder against torch in a loop
- ``startup``: time to ready against the bare Python process
- ``idle``: memory per idle connection
- ``routes``: the look-up among 40,000 routes, and the start with them
"""
