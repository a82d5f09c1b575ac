"""Every metric of torchgate: name, kind, labels, help. The one list; writers register against it.

Who writes: G gateway, W worker, S supervisor (at the time of a scrape). The supervisor adds the blocks of all
processes and prints them (`torchgate.supervisor.exposition`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from torchgate.observe.counters import (
    BOUNDS,
    COUNTER,
    GAUGE,
    HISTOGRAM,
    LATENCY_BOUNDS_S,
    ROWS_BOUNDS,
    CounterBlock,
    Histogram,
)


class MetricSpec(msgspec.Struct, frozen=True):
    """Declaration of one metric."""

    name: str
    kind: int
    labels: tuple[str, ...]
    help: str
    bounds: tuple[float, ...] = ()


PHASES = ("decode", "queue", "batch", "execute", "encode")
"""Phases of a prediction in a worker, as label values of ``torchgate_phase_seconds``.

``batch`` is the time to assemble the input tensors of a call and to take its outputs apart.
"""

_ALL = (
    # G
    MetricSpec("torchgate_requests_total", COUNTER, ("model", "code", "cause"), "Answered requests; model is empty for other routes."),
    MetricSpec("torchgate_request_seconds", HISTOGRAM, ("model",), "First byte of a request to the last byte of its answer handed to the socket.", LATENCY_BOUNDS_S),
    MetricSpec("torchgate_predictions_total", COUNTER, ("model", "outcome"), "Predictions answered, by outcome success or fail."),
    MetricSpec("torchgate_prediction_seconds_total", COUNTER, ("model", "outcome"), "Time from admission to answer, summed."),
    MetricSpec("torchgate_last_inference_unix_seconds", GAUGE, ("model",), "When the last prediction was answered."),
    MetricSpec("torchgate_in_flight", GAUGE, ("model",), "Predictions admitted and not yet answered."),
    MetricSpec("torchgate_parked", GAUGE, ("model",), "Predictions waiting in a gateway for a replica to come up."),
    MetricSpec("torchgate_rejected_total", COUNTER, ("model", "cause"), "Predictions refused before they ran (queue full, deadline, draining)."),
    MetricSpec("torchgate_cancelled_total", COUNTER, ("model",), "Predictions whose client went away before the answer."),
    MetricSpec("torchgate_replayed_total", COUNTER, ("model",), "Predictions run again because their worker died."),
    MetricSpec("torchgate_connections", GAUGE, (), "Open client connections."),
    MetricSpec("torchgate_connections_total", COUNTER, (), "Client connections accepted."),
    MetricSpec("torchgate_connections_refused_total", COUNTER, ("cause",), "Client connections refused."),
    MetricSpec("torchgate_accept_pauses_total", COUNTER, (), "Times accepting paused because there were no file descriptors."),
    MetricSpec("torchgate_tls_handshakes_total", COUNTER, ("outcome",), "TLS handshakes with clients: the version agreed on, or why there was none."),
    MetricSpec("torchgate_buffered_bytes", GAUGE, (), "Request and answer bytes held by gateways."),
    MetricSpec("torchgate_disk_waiting", GAUGE, (), "Looks at files, and pieces of them, that disk threads were given and have not done."),
    MetricSpec("torchgate_files_sending", GAUGE, (), "Files above 256 KiB on their way to clients."),
    MetricSpec("torchgate_file_cache_bytes", GAUGE, (), "Bytes of small files kept in memory."),
    MetricSpec("torchgate_loop_lag_seconds", GAUGE, ("process",), "Lateness of a gateway's event loop, last sample."),
    MetricSpec("torchgate_loop_lag_max_seconds", GAUGE, ("process",), "Largest lateness of a gateway's event loop in the last minute."),
    MetricSpec("torchgate_loop_stalls_total", COUNTER, ("process",), "Times a gateway's event loop was held for over 100 ms."),
    MetricSpec("torchgate_log_lines_dropped_total", COUNTER, (), "Access-log lines dropped because the writer was behind."),
    MetricSpec("torchgate_upstream_requests_total", COUNTER, ("pool", "endpoint", "outcome"), "Tries at endpoints that ended, by outcome success (answered below 500), error (answered from 500 on), failure (no whole answer) or cancelled."),
    MetricSpec("torchgate_upstream_in_flight", GAUGE, ("pool", "endpoint"), "Tries under way."),
    MetricSpec("torchgate_upstream_failures_total", COUNTER, ("pool", "cause"), "Tries at endpoints without a whole answer, by cause."),
    MetricSpec("torchgate_upstream_connections", GAUGE, ("pool",), "Connections to endpoints, idle ones included."),
    MetricSpec("torchgate_upstream_pending", GAUGE, ("pool",), "Requests waiting for an endpoint or a connection."),
    MetricSpec("torchgate_upstream_retries_total", COUNTER, ("pool",), "Tries after the first one of a request."),
    MetricSpec("torchgate_upstream_retries_refused_total", COUNTER, ("pool",), "Retries that the budget did not allow."),
    MetricSpec("torchgate_upstream_hedges_total", COUNTER, ("pool",), "Second endpoints asked because the first was slow."),
    MetricSpec("torchgate_endpoint_circuit", GAUGE, ("pool", "endpoint"), "Passive signals: 0 closed, 1 half open, 2 open (ejected); the worst of all gateways."),
    MetricSpec("torchgate_pool_panic", GAUGE, ("pool",), "1 while endpoints are used that should not be, for want of others."),
    # W
    MetricSpec("torchgate_phase_seconds", HISTOGRAM, ("model", "phase"), "Time of each phase of a prediction in its worker.", LATENCY_BOUNDS_S),
    MetricSpec("torchgate_batch_rows", HISTOGRAM, ("model",), "Rows per call of the model.", ROWS_BOUNDS),
    MetricSpec("torchgate_rows_total", COUNTER, ("model",), "Rows computed."),
    MetricSpec("torchgate_executions_total", COUNTER, ("model",), "Calls of the model."),
    MetricSpec("torchgate_batch_executions_total", COUNTER, ("model", "rows"), "Calls of the model by number of rows."),
    MetricSpec("torchgate_batch_input_seconds_total", COUNTER, ("model", "rows"), "Time to assemble the inputs of calls, by number of rows, summed."),
    MetricSpec("torchgate_batch_execute_seconds_total", COUNTER, ("model", "rows"), "Execute time by number of rows, summed."),
    MetricSpec("torchgate_batch_output_seconds_total", COUNTER, ("model", "rows"), "Time to take the outputs of calls apart, by number of rows, summed."),
    MetricSpec("torchgate_queue_rows", GAUGE, ("model", "replica"), "Rows waiting."),
    MetricSpec("torchgate_queue_oldest_monotonic_seconds", GAUGE, ("model", "replica"), "CLOCK_MONOTONIC at which the oldest waiting request came; 0 when none. Shown as torchgate_queue_age_seconds."),
    MetricSpec("torchgate_expired_total", COUNTER, ("model",), "Requests dropped unrun from the queue because their deadline had passed."),
    MetricSpec("torchgate_cancelled_rows_total", COUNTER, ("model",), "Rows taken out of the queue unrun because their client went away."),
    MetricSpec("torchgate_bisected_batches_total", COUNTER, ("model",), "Failed batches that were split to find the culprit."),
    MetricSpec("torchgate_out_of_memory_total", COUNTER, ("model",), "Calls that ran out of memory and were halved."),
    MetricSpec("torchgate_batch_ceiling_rows", GAUGE, ("model", "replica"), "Most rows per call now, after measurement and out-of-memory halving."),
    MetricSpec("torchgate_nonfinite_outputs_total", COUNTER, ("model", "output"), "Answers with a NaN or Inf, by output."),
    MetricSpec("torchgate_lost_log_lines_total", COUNTER, ("model",), "Worker log lines dropped."),
    # S
    MetricSpec("torchgate_worker_restarts_total", COUNTER, ("model", "cause"), "Worker processes replaced, by cause."),
    MetricSpec("torchgate_gateway_restarts_total", COUNTER, ("cause",), "Gateway processes replaced, by cause."),
    MetricSpec("torchgate_model_ready", GAUGE, ("model",), "Replicas that are loaded, warmed and answering."),
    MetricSpec("torchgate_model_replicas", GAUGE, ("model",), "Replicas wanted."),
    MetricSpec("torchgate_queue_age_seconds", GAUGE, ("model", "replica"), "Age of the oldest waiting request."),
    MetricSpec("torchgate_certificate_expiry_seconds", GAUGE, ("certificate",), "Seconds until a certificate ends; negative when it has."),
    MetricSpec("torchgate_pool_endpoints", GAUGE, ("pool", "state"), "Endpoints by state: usable, ejected, unhealthy, draining."),
    MetricSpec("torchgate_pool_ejections_total", COUNTER, ("pool", "kind"), "Endpoints ejected, by signal: failures, error-rate, latency."),
    MetricSpec("torchgate_pool_skew", GAUGE, ("pool",), "Requests completed by the busiest endpoint, for its weight, over the mean of all; last 10 s with enough of them."),
    MetricSpec("torchgate_endpoint_healthy", GAUGE, ("pool", "endpoint"), "0 when active checks have failed the endpoint; first 1,000 endpoints."),
    MetricSpec("torchgate_endpoint_ejected", GAUGE, ("pool", "endpoint"), "1 while the endpoint is ejected; first 1,000 endpoints."),
    MetricSpec("torchgate_health_checks_total", COUNTER, ("result",), "Active checks, by result pass, fail or not-made (for want of something here)."),
    MetricSpec("torchgate_resolve_age_seconds", GAUGE, ("pool", "name"), "Age of the last good answer for a name; 0 before the first."),
    MetricSpec("torchgate_process_resident_bytes", GAUGE, ("process",), "Resident memory of each process."),
    MetricSpec("torchgate_process_open_fds", GAUGE, ("process",), "Open file descriptors of each process."),
    MetricSpec("torchgate_process_cpu_seconds_total", COUNTER, ("process",), "CPU time of each process."),
)  # fmt: skip

METRICS: dict[str, MetricSpec] = {spec.name: spec for spec in _ALL}
BOUNDS.update({spec.name: spec.bounds for spec in _ALL if spec.bounds})


def value(block: CounterBlock, name: str, labels: Sequence[str] = ()) -> int:
    """Return the index in ``block.values`` of a declared counter or gauge.

    Raises:
        KeyError: The metric is not declared here.
        ValueError: It is a histogram, or the number of label values is wrong.
    """
    spec = METRICS[name]
    if spec.kind == HISTOGRAM or len(labels) != len(spec.labels):
        raise ValueError(f"{name} takes labels {spec.labels}, given {tuple(labels)}")
    return block.register(spec.kind, name, labels)


def histogram(block: CounterBlock, name: str, labels: Sequence[str] = ()) -> Histogram:
    """Return a declared histogram, ready to observe.

    Raises:
        KeyError: The metric is not declared here.
        ValueError: It is not a histogram, or the number of label values is wrong.
    """
    spec = METRICS[name]
    if spec.kind != HISTOGRAM or len(labels) != len(spec.labels):
        raise ValueError(f"{name} takes labels {spec.labels}, given {tuple(labels)}")
    return Histogram(block, name, labels, spec.bounds)


__all__ = ["COUNTER", "GAUGE", "HISTOGRAM", "METRICS", "PHASES", "MetricSpec", "histogram", "value"]
