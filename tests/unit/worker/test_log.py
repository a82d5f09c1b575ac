"""Lines of a worker's log: what is too long loses its middle, not the exception at its end."""

from torchgate.worker.log import shortened


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
