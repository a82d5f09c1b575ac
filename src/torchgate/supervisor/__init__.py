"""The process that owns desired state: it binds, starts, watches, restarts and ends; no traffic passes through it.

Reading order:

- `run`: entry; one service from start to exit code
- `service`: the event loop's side of it: messages, deaths, signals
- `watch`: periodic looks at replicas: hangs, heartbeats, memory, start time-outs
- `tree`: slots and the links between them
- `child`: one slot, its states, the system calls
- `environment`, `sockets`, `limits`, `host`: what children inherit and what the machine allows
- `restart`, `health`: decisions without I/O
- `exposition`, `statistics`, `metrics_http`: one truth from all processes' counters
- `events`: what a console is told
"""
