"""A hook that raises on every request does not bury the log, and nothing is forgotten."""

import os
import re
import threading

from torchgate.clock import NS_PER_S
from torchgate.worker.failures import BURST, LINES, PLACES, WINDOW_NS, Failures
from torchgate.worker.log import WorkerLog

START_NS = 1000 * NS_PER_S
SLOW_NS = NS_PER_S  # apart enough for no burst


def raised(text="no", kind=KeyError):
    try:
        raise kind(text)
    except kind as error:
        return error


def elsewhere(number):
    """An error of a place of its own."""
    code = compile("\n" * number + "raise ValueError('x')", "generated.py", "exec")
    try:
        exec(code)
    except ValueError as error:
        return error


def test_the_first_of_a_place_in_full_a_few_in_a_line_then_their_number():
    failures = Failures()
    told = [
        failures.take("decode failed", b"r%d" % n, raised(f"no {n}"), START_NS + n * SLOW_NS // 20)
        for n in range(1213)
    ]
    texts = [text for one in told for text in one]
    assert "Traceback" in texts[0]
    assert texts[0].startswith("request r0: decode failed\n")
    lines = texts[1:LINES]
    assert (
        lines[0] == "request r1: decode failed: KeyError: 'no 1' (the trace is that of request r0)"
    )
    assert not any("Traceback" in line or "\n" in line for line in lines)
    # 1213 failures in 60.6 s: those after the minute begin again.
    count = next(text for text in texts if "more in the last" in text)
    where = re.escape(f"test_failures.py:{raised.__code__.co_firstlineno + 2}")
    assert re.fullmatch(
        rf"decode failed \(KeyError at {where}\): and 1,190 more in the last 60 s, "
        r"the last of them request r1199",
        count,
    )
    assert sum("Traceback" in text for text in texts) == 2


def test_what_was_counted_is_told_when_the_minute_ends_though_nothing_fails_any_more():
    failures = Failures()
    for n in range(LINES + 3):
        failures.take("x", b"r", raised(), START_NS + n * SLOW_NS)
    assert failures.next_ns == START_NS + WINDOW_NS
    assert failures.due(START_NS + WINDOW_NS - 1) == []
    (text,) = failures.due(START_NS + WINDOW_NS)
    assert "and 3 more in the last 60 s" in text
    assert failures.next_ns == 0
    assert failures.due(START_NS + 2 * WINDOW_NS) == []
    assert "Traceback" in failures.take("x", b"r", raised(), START_NS + 2 * WINDOW_NS)[0]


def test_different_places_and_kinds_are_told_apart():
    failures = Failures()
    for number, error in enumerate([raised(), raised(kind=TypeError), elsewhere(1), elsewhere(2)]):
        (text,) = failures.take("x", b"r", error, START_NS + number)
        assert "Traceback" in text


def test_places_without_end_keep_within_bounds():
    """Neither the table nor the log grows, and what is dropped is told."""
    failures = Failures()
    texts = [
        text
        for n in range(500)
        for text in failures.take("x", b"r%d" % n, elsewhere(n), START_NS + n)
    ]
    assert len(failures._places) == PLACES
    assert sum("Traceback" in text for text in texts) == BURST
    counted = sum(int(found[1]) for text in texts if (found := re.search(r"and (\d+) more", text)))
    left = sum(place.more for place in failures._places.values())
    assert BURST + counted + left == 500


def test_a_place_that_only_the_burst_kept_quiet_is_told_in_full_later():
    failures = Failures()
    for n in range(BURST):
        failures.take("x", b"r", elsewhere(n), START_NS)
    assert failures.take("x", b"a", raised(), START_NS) == []
    (text,) = failures.take("x", b"b", raised(), START_NS + 20 * NS_PER_S)
    assert text.startswith("request b: x\n")
    assert "Traceback" in text


def test_an_exception_whose_text_raises_is_told_as_well():
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    failures = Failures()
    for n in range(3):
        (text,) = failures.take("x", b"r", odd(Odd), START_NS + n)
        assert "Odd" in text


def odd(kind):
    try:
        raise kind
    except kind as error:
        return error


def test_the_log_tells_the_count_by_itself_and_at_the_end(monkeypatch):
    reading, writing = os.pipe()
    monkeypatch.setattr("torchgate.observe.notices._STDERR", writing)
    monkeypatch.setattr("torchgate.worker.failures.WINDOW_NS", NS_PER_S // 5)
    log = WorkerLog()
    log.is_of("m/0")
    error = raised()
    threads = [
        threading.Thread(target=log.failure, args=("decode failed", b"r", error)) for _ in range(50)
    ]
    for thread in threads:
        thread.start()
    with os.fdopen(reading) as lines:
        count = next(line for line in lines if "more in the last" in line)
        assert count.startswith("torchgate worker m/0: decode failed (KeyError at ")
        for thread in threads:
            thread.join()
        monkeypatch.setattr("torchgate.worker.failures.WINDOW_NS", 60 * NS_PER_S)
        for _ in range(LINES + 5):
            log.failure("encode failed", b"r", raised(kind=OSError))
        log.flush(5.0)
        log.fatal("the end", error)
        told = [next(lines)]
        while "the end" not in told[-1]:
            told.append(next(lines))
        assert any("encode failed" in line and "more in the last" in line for line in told)
    os.close(writing)
