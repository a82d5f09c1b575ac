"""How long an endpoint keeps idle connections, learned from when it closes them. No clocks.

An upstream that closes an idle connection just as a request is sent on it makes that request fail, for nobody's fault.
It can't be told apart from an upstream that died after it had read the request, so only safe requests may be sent
again. The cure is not to use connections that are about to be closed: most servers have one fixed idle time.

A restart closes connections of all ages in one moment; that teaches nothing.
"""

from __future__ import annotations

from torchgate.clock import NS_PER_MS, NS_PER_S

LEAST_NS = NS_PER_S // 4
"""Connections closed earlier were not closed for being idle."""

SHARE = 0.8
"""Of the learned time, how long a connection is used: the rest covers the way there and clocks that differ."""

TOGETHER_NS = 200 * NS_PER_MS
"""Closings of different ages within this time are one event, such as a restart."""

FORGET_NS = 600 * NS_PER_S
"""After so long without a closing, what was learned is tried anew: the endpoint may have another idle time by now."""


class IdleTime:
    """What is known of one endpoint.

    Attributes:
        use_ns: Use a connection only when it was idle for less; 0 when nothing is known.
    """

    __slots__ = ("_age_ns", "_at_ns", "_before_ns", "use_ns")

    def __init__(self) -> None:
        self.use_ns = 0
        self._before_ns = 0  # what was known before the last closing
        self._at_ns = -FORGET_NS  # of the last closing
        self._age_ns = 0

    def closed(self, age_ns: int, now_ns: int, oldest_ns: int) -> bool:
        """The endpoint closed a connection that was idle; return whether what is known has changed.

        Args:
            age_ns: How long it was idle.
            now_ns: When it was closed.
            oldest_ns: How long the oldest connection that is still open has been idle; 0 when there is none.
        """
        known = self.use_ns
        if now_ns - self._at_ns < TOGETHER_NS and abs(age_ns - self._age_ns) > TOGETHER_NS:
            self.use_ns = self._before_ns
            self._at_ns, self._age_ns = now_ns, age_ns
            return self.use_ns != known
        self._at_ns, self._age_ns = now_ns, age_ns
        self._before_ns = known
        if age_ns < LEAST_NS or oldest_ns > age_ns + TOGETHER_NS:
            return False
        use_ns = int(age_ns * SHARE)
        if not known or use_ns < known:
            self.use_ns = use_ns
        return self.use_ns != known

    def told(self, idle_s: int) -> None:
        """The endpoint says how long it keeps idle connections (``Keep-Alive: timeout=``)."""
        use_ns = int(idle_s * NS_PER_S * SHARE)
        if not self.use_ns or use_ns < self.use_ns:
            self.use_ns = use_ns

    def tick(self, now_ns: int) -> None:
        """Forget what is too old to be believed."""
        if self.use_ns and now_ns - self._at_ns >= FORGET_NS and self._age_ns:
            self.use_ns = self._before_ns = self._age_ns = 0
