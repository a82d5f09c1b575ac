"""Steps around a handler. Room prepared: nothing here yet.

Will hold one class per step (``__init__(next, ...)`` and ``__call__(exchange)``): authentication, rate limits, header
rules. What every request needs today (limits, request id, access log, compression) is part of the exchange itself.
"""
