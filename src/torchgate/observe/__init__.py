"""What processes write down about themselves, in shared memory that outlives them.

Read in this order:

- `metrics`: every metric, declared once.
- `counters`: the block of numbers in which a process counts.
- `activity`: what a worker is doing right now.
"""
