"""What applies to answers whatever their handler.

Errors found before a handler is known (framing, limits, routing) must pass here too, so these act
where answers are framed (`torchgate.gateway.transmit`), in this order:

1. `torchgate.gateway.compress`: representation.
2. `cors`: cross-origin fields, when origins are configured.
"""
