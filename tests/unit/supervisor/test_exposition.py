"""Counter blocks of several processes add up to one truth."""

import json
import os

import pytest
from prometheus_client.parser import text_string_to_metric_families

from torchgate.observe import metrics
from torchgate.observe.counters import GAUGE, CounterBlock, create_block
from torchgate.observe.sample import Sample
from torchgate.schema.config import ModelConfig
from torchgate.supervisor.exposition import add_up, process_samples, prometheus_text
from torchgate.supervisor.statistics import statistics_json


@pytest.fixture
def blocks():
    fds = [create_block(), create_block()]
    found = [CounterBlock(fd) for fd in fds]
    yield found
    for block, fd in zip(found, fds, strict=True):
        block.close()
        os.close(fd)


def add(block, name, labels, amount):
    block.values[metrics.value(block, name, labels)] += amount


def samples(blocks):
    return [sample for block in blocks for sample in block.samples()]


def parsed(text):
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_counters_of_two_processes_add_up(blocks):
    for block in blocks:
        add(block, "torchgate_requests_total", ("net", "200", ""), 5)
    add(blocks[1], "torchgate_requests_total", ("net", "503", "queue-full"), 1)
    found = parsed(prometheus_text(add_up(samples(blocks), 0)))
    ok = (("cause", ""), ("code", "200"), ("model", "net"))
    assert found["torchgate_requests_total", ok] == 10
    late = (("cause", "queue-full"), ("code", "503"), ("model", "net"))
    assert found["torchgate_requests_total", late] == 1


def test_histograms_become_cumulative(blocks):
    for block in blocks:
        histogram = metrics.histogram(block, "torchgate_batch_rows", ("net",))
        histogram.observe(1)
        histogram.observe(32, 2)
        histogram.observe(5000)
    found = parsed(prometheus_text(add_up(samples(blocks), 0)))
    assert found["torchgate_batch_rows_bucket", (("le", "1.0"), ("model", "net"))] == 2
    assert found["torchgate_batch_rows_bucket", (("le", "32.0"), ("model", "net"))] == 6
    assert found["torchgate_batch_rows_bucket", (("le", "+Inf"), ("model", "net"))] == 8
    assert found["torchgate_batch_rows_count", (("model", "net"),)] == 8
    assert found["torchgate_batch_rows_sum", (("model", "net"),)] == 2 * (1 + 64 + 5000)


def test_the_time_of_the_last_inference_is_the_latest_not_the_sum(blocks):
    for block, when in zip(blocks, (100.0, 300.0), strict=True):
        add(block, "torchgate_last_inference_unix_seconds", ("net",), when)
    sums = add_up(samples(blocks), 0)
    assert sums["torchgate_last_inference_unix_seconds"]["net",] == [300.0]


def test_the_oldest_waiting_request_is_shown_as_an_age(blocks):
    add(blocks[0], "torchgate_queue_oldest_monotonic_seconds", ("net", "0"), 90.0)
    add(blocks[1], "torchgate_queue_oldest_monotonic_seconds", ("net", "1"), 0.0)
    sums = add_up(samples(blocks), 100 * 10**9)
    assert sums["torchgate_queue_age_seconds"] == {("net", "0"): [10.0], ("net", "1"): [0.0]}
    assert "torchgate_queue_oldest_monotonic_seconds" not in sums


def test_a_name_of_another_version_is_left_out():
    sample = Sample(GAUGE, "torchgate_unheard_of", (), (1.0,))
    assert add_up([sample], 0) == {}


def test_label_values_with_quotes_and_newlines_survive(blocks):
    add(blocks[0], "torchgate_cancelled_total", ('a"b\\c\nd',), 1)
    found = parsed(prometheus_text(add_up(samples(blocks), 0)))
    assert found["torchgate_cancelled_total", (("model", 'a"b\\c\nd'),)] == 1


def test_this_process_can_be_measured_and_a_gone_one_is_silent():
    found = {sample.name: sample.values[0] for sample in process_samples("me", os.getpid())}
    assert found["torchgate_process_resident_bytes"] > 1024 * 1024
    assert found["torchgate_process_open_fds"] >= 3
    assert list(process_samples("gone", 2**22 + 1)) == []


def test_statistics_split_the_time_of_a_prediction(blocks):
    gateway, worker = blocks
    add(gateway, "torchgate_predictions_total", ("net", "success"), 3)
    add(gateway, "torchgate_prediction_seconds_total", ("net", "success"), 0.006)
    add(gateway, "torchgate_last_inference_unix_seconds", ("net",), 1000.5)
    for phase, seconds in [("decode", 0.001), ("batch", 0.0005), ("execute", 0.002)]:
        metrics.histogram(worker, "torchgate_phase_seconds", ("net", phase)).observe(seconds)
    add(worker, "torchgate_rows_total", ("net",), 6)
    add(worker, "torchgate_executions_total", ("net",), 1)
    add(worker, "torchgate_batch_executions_total", ("net", "6"), 1)
    add(worker, "torchgate_batch_execute_seconds_total", ("net", "6"), 0.002)
    add(worker, "torchgate_batch_input_seconds_total", ("net", "6"), 0.0003)
    add(worker, "torchgate_batch_output_seconds_total", ("net", "6"), 0.0002)
    text = statistics_json([ModelConfig(name="net", target="m:net")], add_up(samples(blocks), 0))
    (stats,) = json.loads(text)["model_stats"]
    assert (stats["name"], stats["version"], stats["last_inference"]) == ("net", "1", 1000500)
    assert (stats["inference_count"], stats["execution_count"]) == (6, 1)
    inference = stats["inference_stats"]
    assert inference["success"] == {"count": 3, "ns": 6_000_000}
    assert inference["compute_input"] == {"count": 1, "ns": 1_500_000}
    assert inference["compute_infer"] == inference["execute"] == {"count": 1, "ns": 2_000_000}
    assert stats["batch_stats"][0]["batch_size"] == 6
    assert stats["batch_stats"][0]["compute_infer"] == {"count": 1, "ns": 2_000_000}
    assert stats["batch_stats"][0]["compute_input"] == {"count": 1, "ns": 300_000}
    assert stats["batch_stats"][0]["compute_output"] == {"count": 1, "ns": 200_000}
