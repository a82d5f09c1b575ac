"""Which failures of a model's code are told in full, in a line, or only counted. Sans-I/O.

A hook or a model that raises on every request would bury everything else under the same trace. So per distinct place
and minute: the first in full, a few more in one line each, and then how many more there were.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import traceback
from types import TracebackType

from torchgate.clock import NS_PER_S

WINDOW_NS = 60 * NS_PER_S
"""So long the failures of one place are counted together; the next one is told in full again."""

LINES = 10
"""Failures of one place and window that are told at all, the first included."""

PLACES = 64
"""Most places at a time; for a new one the oldest is told and forgotten."""

BURST = 20
"""Most failures told in `BURST_NS`, whatever their places."""

BURST_NS = 10 * NS_PER_S

_FRAMES = 8  # innermost ones that tell places apart
_MAX_TEXT = 200  # characters of an exception in a line

_Key = tuple[object, ...]


@dataclasses.dataclass(slots=True)
class _Place:
    """Failures of one place in one window."""

    what: str  # of the first
    where: str
    ends_ns: int
    traced: bytes | None = None  # id of the request whose trace was told
    lines: int = 0
    more: int = 0
    last: bytes = b""


class Failures:
    """Remembers which places have failed; any thread."""

    def __init__(self) -> None:
        self._places: dict[_Key, _Place] = {}  # by end of window, since all are equally long
        self._lock = threading.Lock()
        self._burst_ns = 0
        self._burst = 0

    @property
    def next_ns(self) -> int:
        """When `due` has something to do next; 0 for never."""
        with self._lock:
            return next((place.ends_ns for place in self._places.values()), 0)

    def take(self, what: str, request_id: bytes, error: BaseException, now_ns: int) -> list[str]:
        """Note a failure and return what to log now, often nothing.

        Args:
            what: What failed, for people.
            request_id: The request.
            error: What was raised.
            now_ns: The time.
        """
        key = _key(error)
        with self._lock:
            texts = self._end(now_ns)
            place = self._places.get(key)
            if place is None:
                if len(self._places) >= PLACES:
                    texts += _count(self._places.pop(next(iter(self._places))), now_ns)
                place = _Place(what, _where(error), now_ns + WINDOW_NS)
                self._places[key] = place
            if place.lines >= LINES or not self._may_tell(now_ns):
                place.more += 1
                place.last = request_id
                return texts
            place.lines += 1
            before = place.traced
            if before is None:
                place.traced = request_id
        head = f"request {_text(request_id)}: {what}"
        if before is None:
            trace = "".join(traceback.format_exception(error)).rstrip()
            texts.append(f"{head}\n{trace}")
        else:
            texts.append(f"{head}: {_brief(error)} (the trace is that of request {_text(before)})")
        return texts

    def due(self, now_ns: int) -> list[str]:
        """Return what to log of the windows that have ended."""
        with self._lock:
            return self._end(now_ns)

    def close(self, now_ns: int) -> list[str]:
        """Return what to log of all windows: the process ends."""
        with self._lock:
            texts = [text for place in self._places.values() for text in _count(place, now_ns)]
            self._places.clear()
            return texts

    def _end(self, now_ns: int) -> list[str]:
        texts: list[str] = []
        while self._places:
            key = next(iter(self._places))
            if self._places[key].ends_ns > now_ns:
                break
            texts += _count(self._places.pop(key), now_ns)
        return texts

    def _may_tell(self, now_ns: int) -> bool:
        if now_ns - self._burst_ns > BURST_NS:
            self._burst_ns, self._burst = now_ns, 0
        self._burst += 1
        return self._burst <= BURST


def _count(place: _Place, now_ns: int) -> list[str]:
    if not place.more:
        return []
    seconds = max(1, round((now_ns - place.ends_ns + WINDOW_NS) / NS_PER_S))
    head = f"{place.what} ({place.where})"
    return [
        f"{head}: and {place.more:,} more in the last {seconds} s, the last of them request {_text(place.last)}"
    ]


def _key(error: BaseException) -> _Key:
    return (type(error), *_innermost(error.__traceback__))


def _innermost(trace: TracebackType | None) -> list[tuple[str, int]]:
    frames: list[tuple[str, int]] = []
    while trace is not None:
        frames.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    return frames[-_FRAMES:]


def _where(error: BaseException) -> str:
    name = type(error).__name__
    frames = _innermost(error.__traceback__)
    if not frames:
        return name
    file, line = frames[-1]
    return f"{name} at {os.path.basename(file)}:{line}"


def _brief(error: BaseException) -> str:
    # Not str(): that is the user's code too, and may raise.
    text = " ".join("".join(traceback.format_exception_only(error)).split())
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."


def _text(request_id: bytes) -> str:
    return request_id.decode("latin-1")
