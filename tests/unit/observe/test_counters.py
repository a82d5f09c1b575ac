"""Counter blocks: values outlive their writer, names are shared, and a full block never breaks a writer."""

from __future__ import annotations

import os

import pytest

from torchgate.observe import counters, metrics


def test_a_second_writer_goes_on_where_the_first_ended() -> None:
    """Counts survive the process that made them: the next incarnation adds to the same values."""
    fd = counters.create_block()
    first = counters.CounterBlock(fd)
    index = metrics.value(first, "torchgate_rows_total", ("m",))
    first.values[index] += 5
    hist = metrics.histogram(first, "torchgate_batch_rows", ("m",))
    hist.observe(3)

    second = counters.CounterBlock(fd)
    second.values[metrics.value(second, "torchgate_rows_total", ("m",))] += 2
    metrics.histogram(second, "torchgate_batch_rows", ("m",)).observe(5000, 2)
    other = metrics.value(second, "torchgate_rows_total", ("n",))
    second.values[other] += 1

    samples = {(s.name, s.labels): s for s in counters.CounterBlock(fd).samples()}
    assert samples["torchgate_rows_total", ("m",)].values == (7.0,)
    assert samples["torchgate_rows_total", ("n",)].values == (1.0,)
    rows = samples["torchgate_batch_rows", ("m",)].values
    assert rows[2] == 1.0, "3 falls into the bucket up to 4"
    assert rows[-2] == 2.0, "5000 falls into the overflow bucket"
    assert rows[-1] == 3 + 2 * 5000
    os.close(fd)


def test_bounds_are_inclusive() -> None:
    """A value on a bound is counted in that bucket, as Prometheus' ``le`` says."""
    block = counters.CounterBlock(counters.create_block())
    hist = counters.Histogram(block, "h", (), (1.0, 2.0))
    for value in (1.0, 1.5, 2.0, 2.1):
        hist.observe(value)
    (sample,) = block.samples()
    assert sample.values == (1.0, 2.0, 1.0, 6.6)


def test_a_full_block_gives_the_spill_value() -> None:
    """Too many label values cost accuracy of the surplus, never an error in a request."""
    block = counters.CounterBlock(counters.create_block())
    indexes = {
        block.register(counters.COUNTER, "c", (str(i),)) for i in range(counters.MAX_VALUES + 1)
    }
    assert 0 in indexes
    assert max(indexes) < counters.MAX_VALUES
    block.values[0] += 1
    assert len(list(block.samples())) == len(indexes) - 1


def test_a_wrong_label_count_is_refused() -> None:
    """A metric is used as declared or not at all."""
    block = counters.CounterBlock(counters.create_block())
    with pytest.raises(ValueError, match="labels"):
        metrics.value(block, "torchgate_rows_total", ())
    with pytest.raises(ValueError, match="labels"):
        metrics.value(block, "torchgate_batch_rows", ("m",))
    with pytest.raises(KeyError):
        metrics.value(block, "torchgate_unheard_of", ())
