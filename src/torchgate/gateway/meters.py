"""The gateway's own values in its counter block: requests, connections, memory, loop."""

from __future__ import annotations

from torchgate.clock import NS_PER_S
from torchgate.observe import metrics
from torchgate.observe.counters import CounterBlock, Histogram


class _Answers:
    """How often one model answered with one status and cause."""

    __slots__ = ("cause", "count", "index", "status")

    def __init__(self, status: int, cause: str, index: int, count: int) -> None:
        self.status = status
        self.cause = cause
        self.index = index
        self.count = count


class _ModelAnswers:
    """What one model answered; the latest kind of answer, which mostly comes again, is at hand."""

    __slots__ = ("known", "latest", "seconds")

    def __init__(self, latest: _Answers, seconds: Histogram) -> None:
        self.latest = latest
        self.known: dict[tuple[int, str], _Answers] = {(latest.status, latest.cause): latest}
        self.seconds = seconds


class GatewayMeters:
    """Counters and gauges of one gateway process.

    Args:
        block: Its counter block.
        process: Label of the process, such as ``gateway-0``.
    """

    def __init__(self, block: CounterBlock, process: str) -> None:
        self._block = block
        self._values = block.values
        self._models: dict[str, _ModelAnswers] = {}
        self._connections = metrics.value(block, "torchgate_connections")
        self._accepted = metrics.value(block, "torchgate_connections_total")
        self._refused: dict[str, int] = {}
        self._handshakes: dict[str, int] = {}
        self._buffered = metrics.value(block, "torchgate_buffered_bytes")
        self._lag = metrics.value(block, "torchgate_loop_lag_seconds", (process,))
        self._lag_max = metrics.value(block, "torchgate_loop_lag_max_seconds", (process,))
        self._stalls = metrics.value(block, "torchgate_loop_stalls_total", (process,))
        self._dropped = metrics.value(block, "torchgate_log_lines_dropped_total")
        self._disk = metrics.value(block, "torchgate_disk_waiting")
        self._sending = metrics.value(block, "torchgate_files_sending")
        self._file_cache = metrics.value(block, "torchgate_file_cache_bytes")
        # A predecessor that died left its gauges in the block.
        self._values[self._connections] = self._values[self._buffered] = 0
        self.files(0, 0, 0)

    def answered(self, model: str, status: int, cause: str, duration_ns: int) -> None:
        """Count an answered (or given up) request."""
        of_model = self._models.get(model)
        if of_model is None:
            seconds = metrics.histogram(self._block, "torchgate_request_seconds", (model,))
            of_model = _ModelAnswers(self._new_answers(model, status, cause), seconds)
            self._models[model] = of_model
        answers = of_model.latest
        if answers.status != status or answers.cause != cause:
            known = of_model.known.get((status, cause))
            if known is None:
                known = self._new_answers(model, status, cause)
                of_model.known[status, cause] = known
            answers = of_model.latest = known
        answers.count += 1
        self._values[answers.index] = answers.count
        of_model.seconds.observe(duration_ns / NS_PER_S)

    def _new_answers(self, model: str, status: int, cause: str) -> _Answers:
        labels = (model, str(status), cause)
        index = metrics.value(self._block, "torchgate_requests_total", labels)
        return _Answers(status, cause, index, int(self._values[index]))

    def accepted(self) -> None:
        """Count a new connection."""
        self._values[self._accepted] += 1
        self._values[self._connections] += 1

    def closed(self) -> None:
        """Count the end of a connection."""
        self._values[self._connections] -= 1

    def refused(self, cause: str) -> None:
        """Count a connection that was turned away."""
        index = self._refused.get(cause)
        if index is None:
            index = metrics.value(self._block, "torchgate_connections_refused_total", (cause,))
            self._refused[cause] = index
        self._values[index] += 1

    def accept_paused(self) -> None:
        """Count a pause of accepting, for want of descriptors."""
        self._values[metrics.value(self._block, "torchgate_accept_pauses_total")] += 1

    def handshake(self, outcome: str) -> None:
        """Count a TLS handshake: the version that was agreed on, or why there was none."""
        index = self._handshakes.get(outcome)
        if index is None:
            index = metrics.value(self._block, "torchgate_tls_handshakes_total", (outcome,))
            self._handshakes[outcome] = index
        self._values[index] += 1

    def gauges(self, buffered_bytes: int, lag_s: float, lag_max_s: float) -> None:
        """Set what is sampled on each tick."""
        values = self._values
        values[self._buffered] = buffered_bytes
        values[self._lag] = lag_s
        values[self._lag_max] = lag_max_s

    def files(self, waiting: int, sending: int, cached_bytes: int) -> None:
        """Set what static files take now."""
        values = self._values
        values[self._disk] = waiting
        values[self._sending] = sending
        values[self._file_cache] = cached_bytes

    def stalled(self) -> None:
        """Count a stall of the loop; called by the watchdog thread only."""
        self._values[self._stalls] += 1

    def lines_dropped(self, count: int) -> None:
        """Count access-log lines that were dropped."""
        self._values[self._dropped] += count
