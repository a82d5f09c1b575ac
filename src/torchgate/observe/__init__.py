"""What processes write down about themselves: in shared memory that outlives them, and in logs.

Read in this order:

- `metrics`: every metric, declared once.
- `counters`, `sample`: the block of numbers in which a process counts; one that was read.
- `activity`: what a worker is doing right now.
- `logs`: the access log, bounded and off the loop.
- `notices`: lines for people, bounded and off the loop.
- `stall`: lateness of a loop, and what held it.
- `resident`: memory of a process that may be given back.
"""
