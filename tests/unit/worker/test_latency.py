"""Measured times: prediction, the best size, inline or not."""

from torchgate.worker.latency import LatencyTable, LatencyTables


def table(measured: dict[int, float], times: int = 3) -> LatencyTable:
    """Return a table with each size measured a few times."""
    out = LatencyTable()
    for _ in range(times):
        for rows, us in measured.items():
            out.record(rows, us)
    return out


def test_nothing_measured_predicts_nothing() -> None:
    """0 means unknown."""
    assert LatencyTable().predict_us(4) == 0.0
    assert not LatencyTable().measured


def test_an_unmeasured_size_takes_the_next_larger_or_is_scaled_up() -> None:
    """Never an optimistic guess between sizes."""
    times = table({1: 100.0, 8: 400.0})
    assert times.predict_us(1) == 100.0
    assert times.predict_us(3) == 400.0
    assert times.predict_us(16) == 800.0


def test_one_outlier_moves_the_average_little() -> None:
    """A preempted call looks a hundred times as slow; it counts as half as slow again."""
    times = table({4: 100.0}, times=10)
    for _ in range(100):  # every third call is preempted
        times.record(4, 10_000.0)
        times.record(4, 100.0)
        times.record(4, 100.0)
    assert times.predict_us(4) < 130.0


def test_a_lasting_change_is_believed_after_four_calls() -> None:
    """Slower: the least of four in a row. Faster: at once, by and by."""
    times = table({4: 100.0}, times=10)
    for us in (900.0, 1_100.0, 800.0, 1_000.0):
        times.record(4, us)
    assert times.predict_us(4) == 800.0
    for _ in range(20):
        times.record(4, 100.0)
    assert times.predict_us(4) < 110.0


def test_a_size_is_not_judged_on_its_first_calls() -> None:
    """First calls of a size pay for set-up: it stays allowed until it has three samples."""
    times = table({1: 1_000.0, 2: 1_100.0})
    times.record(4, 40_000.0)
    assert times.best_rows(100) == 8
    times.record(4, 40_000.0)
    times.record(4, 40_000.0)
    assert times.best_rows(100) == 2


def test_a_capped_size_is_tried_again_now_and_then() -> None:
    """So that a bad measurement does not pin it for ever."""
    times = table({1: 1_000.0, 2: 1_100.0, 4: 40_000.0})
    assert [times.best_rows(100) for _ in range(64)] == [2] * 63 + [4]


def test_small_calls_run_inline_with_hysteresis() -> None:
    """Around the threshold the choice does not flap."""
    times = table({1: 500.0, 2: 1_000.0, 4: 1_500.0})
    assert times.runs_inline(1)
    assert times.runs_inline(2)
    assert not times.runs_inline(4)
    assert not times.runs_inline(2)
    assert not times.runs_inline(64)  # unmeasured


def test_preempted_calls_do_not_end_inlining() -> None:
    """Most calls of a short model look slow on a busy machine; it is still short."""
    times = table({1: 30.0})
    for _ in range(20):
        for us in (4_000.0, 4_000.0, 4_000.0, 4_000.0, 4_000.0, 30.0):
            times.record(1, us)
    assert times.runs_inline(1)


def test_an_inline_call_that_hung_bans_inlining_for_a_while() -> None:
    """The I/O thread was held once; not again soon."""
    times = table({1: 100.0})
    assert times.runs_inline(1)
    times.record(1, 200_000.0)
    assert not times.runs_inline(1)
    assert any(times.runs_inline(1) for _ in range(200))


def test_work_classes_do_not_mix() -> None:
    """Short and long sequences have their own times; the same power of two shares."""
    tables = LatencyTables({1: 100.0}, 64)
    assert tables.of(64) is tables.of(100)
    assert tables.of(64) is not tables.of(1_000)
    assert not tables.of(1_000).measured


def test_a_new_class_of_larger_rows_inherits_the_ceiling() -> None:
    """What did not fit with small rows does not fit with larger ones."""
    tables = LatencyTables({}, 64)
    tables.lower_ceiling(tables.of(64), 8)
    assert tables.of(4_000).ceiling == 8
    assert tables.of(2).ceiling == 0
    assert tables.lowest_ceiling == 8


def test_a_size_that_turned_slow_voids_what_others_took() -> None:
    """Else the cost of a row would stay that of a size that is not called any more."""
    times = table({1: 10.0, 64: 64.0}, times=10)
    for _ in range(4):
        times.record(1, 500_000.0)
    assert times.row_us == 500_000.0
    assert times.predict_us(64) == 64 * 500_000.0
    assert times.best_rows(100) == 2  # and grows again from here


def test_preempted_calls_void_nothing() -> None:
    """Four in a row happen on a busy machine; they are not so slow."""
    times = table({1: 10.0, 64: 64.0}, times=10)
    for _ in range(4):
        times.record(1, 20_000.0)
    assert times.predict_us(64) == 64.0
