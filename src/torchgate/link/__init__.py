"""Links between the processes of one service: thin shells over sockets and shared memory.

Read in this order:

- `control`: messages and file descriptors between the supervisor and a child.
- `load_table`: how many requests each endpoint has, over all gateways.
- `arena`: shared memory in which large bodies pass from a gateway to a worker.
"""
