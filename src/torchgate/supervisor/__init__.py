"""The process that owns desired state: it binds, starts, watches, restarts and ends; no traffic passes through it.

Reading order:

- `run`: entry; one service from start to exit code
- `loop`: puts service, metrics listener and console on an event loop
- `service`: messages, deaths, restarts
- `ending`, `phase`: signals, the drain, the end; the life of a service as a table
- `wiring`: the loop's hands on control links and process ends
- `watch`: periodic looks at replicas: hangs, heartbeats, memory, start time-outs
- `tree`: slots and the links between them
- `child`: one slot, its states, the system calls
- `launch`: a process with its control link, also ahead of its slot
- `environment`, `sockets`, `unix_socket`: what children inherit
- `limits`, `host`, `strays`: what the machine allows, and leftovers
- `certificates`: everything that can be wrong with a certificate, before a client finds out
- `restart`, `health`, `deaths`: decisions without I/O
- `pool_loop`: looks up the names of pools, checks their endpoints
- `membership`: who is in each pool, told to all gateways
- `member`, `names`: one endpoint; one name that is looked up again and again; decisions without I/O
- `guard`, `slots`, `skew`: which addresses endpoints may have, their rows in the load table, how evenly they are used
- `resolve`, `health_check`: names to addresses; one active check
- `report`, `exposition`, `statistics`, `metrics_http`: one truth from all processes' counters
- `events`: what a console is told
"""
