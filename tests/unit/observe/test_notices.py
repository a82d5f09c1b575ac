"""Lines for people: nobody waits for a reader, and what was not said is counted."""

import os
import threading
import time

import pytest

from torchgate.observe import notices
from torchgate.observe.notices import MAX_LINES, Notices, shortened


def test_a_long_trace_keeps_its_beginning_and_the_exception() -> None:
    trace = "Traceback (most recent call last):\n" + "  frame\n" * 10_000 + "ValueError: the reason"
    text = shortened(trace)
    assert text.startswith("Traceback (most recent call last):\n")
    assert text.endswith("ValueError: the reason")
    assert "characters left out" in text
    assert len(text) < 17_000


def test_other_texts_stay_as_they_are() -> None:
    assert shortened("short") == "short"
    assert shortened("x" * 16 * 1024) == "x" * 16 * 1024


@pytest.mark.pain("N01")
def test_a_reader_that_stands_still_holds_nobody_up_and_hears_how_much_it_missed(monkeypatch):
    reading, writing = os.pipe()
    monkeypatch.setattr(notices, "_STDERR", writing)
    monkeypatch.setattr(notices, "MOST_A_SECOND", 10**9)
    say = Notices("gateway")
    done = threading.Thread(target=lambda: [say("x" * 1000) for _ in range(3 * MAX_LINES)])
    done.start()
    done.join(20)
    assert not done.is_alive(), "a full pipe held up whoever spoke"
    assert say.lost >= MAX_LINES
    lines = os.fdopen(reading)
    heard: list[str] = []
    reader = threading.Thread(target=lambda: heard.extend(lines))
    reader.start()
    say.flush(20)
    lost = say.lost
    say("again")
    say.flush(20)
    os.close(writing)
    reader.join(20)
    lines.close()
    assert heard[0].startswith("gateway: xxx")
    assert heard[-2:] == [f"gateway: {lost} lines were dropped here\n", "gateway: again\n"]


def test_what_comes_with_every_request_is_told_of_so_often_and_no_more(monkeypatch):
    reading, writing = os.pipe()
    monkeypatch.setattr(notices, "_STDERR", writing)
    monkeypatch.setattr(notices, "MOST_A_SECOND", 3)
    say = Notices("gateway")
    began = time.monotonic()
    while say.lost < 2 and time.monotonic() - began < 10:
        say("a defect")
    say.flush(5)
    written = os.read(reading, 65536).decode().splitlines()
    assert say.lost == 2
    assert len([line for line in written if line == "gateway: a defect"]) % 3 == 0
    os.close(reading)
    os.close(writing)
