"""Whether two patterns can match the same text: needed to tell a tie from patterns that never meet.

Both are read as automata over classes of characters (the regular core of RE2: literals, classes, groups, alternatives,
repetition), and a state that accepts in both is looked for. What is not understood, or grows too large, counts as
overlapping: then a tie is reported rather than missed.
"""

from __future__ import annotations

from collections.abc import Iterable

MAX_STATES = 2_000
"""States of one automaton, and pairs of them that are visited times ten."""

_LAST = 0x10FFFF
_CLASSES: dict[str, tuple[tuple[int, int], ...]] = {
    "d": ((48, 57),),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "s": ((9, 10), (12, 13), (32, 32)),
}
_ESCAPES = {"n": 10, "t": 9, "r": 13, "f": 12, "v": 11, "a": 7}
_SPECIAL = frozenset("()[]{}*+?|.^$\\")

Ranges = tuple[tuple[int, int], ...]


class _UnknownError(Exception):
    """The pattern holds something that is not understood here."""


def can_both_match(one: str, other: str) -> bool:
    """Return whether some text matches both patterns as a whole; True when that can't be said."""
    try:
        first, second = _Automaton(one), _Automaton(other)
    except _UnknownError:
        return True
    begin = (first.begin, second.begin)
    seen = {begin}
    todo = [begin]
    while todo:
        a, b = todo.pop()
        if a == first.end and b == second.end:
            return True
        following = [(next_a, b) for next_a in first.empty[a]]
        following += [(a, next_b) for next_b in second.empty[b]]
        for ranges_a, next_a in first.steps[a]:
            following += [
                (next_a, next_b)
                for ranges_b, next_b in second.steps[b]
                if _meet(ranges_a, ranges_b)
            ]
        for pair in following:
            if pair not in seen:
                seen.add(pair)
                todo.append(pair)
        if len(seen) > 10 * MAX_STATES:
            return True
    return False


def _meet(one: Ranges, other: Ranges) -> bool:
    return any(a <= d and c <= b for a, b in one for c, d in other)


class _Automaton:
    """A non-deterministic automaton with empty steps (Thompson's construction).

    Attributes:
        begin, end: First and accepting state.
        steps: State -> characters and the next state.
        empty: State -> states reached without a character.

    Raises:
        _UnknownError: The pattern holds something that is not understood.
    """

    def __init__(self, pattern: str) -> None:
        self._text = pattern.removeprefix("^").removesuffix("$")
        if pattern.endswith("\\$"):
            raise _UnknownError
        self._at = 0
        self.steps: list[list[tuple[Ranges, int]]] = []
        self.empty: list[list[int]] = []
        self.begin, self.end = self._alternatives()
        if self._at < len(self._text):
            raise _UnknownError

    def _state(self) -> int:
        if len(self.steps) >= MAX_STATES:
            raise _UnknownError
        self.steps.append([])
        self.empty.append([])
        return len(self.steps) - 1

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        taken = self._peek()
        if not taken:
            raise _UnknownError
        self._at += 1
        return taken

    def _alternatives(self) -> tuple[int, int]:
        begin, end = self._state(), self._state()
        while True:
            first, last = self._sequence()
            self.empty[begin].append(first)
            self.empty[last].append(end)
            if self._peek() != "|":
                return begin, end
            self._at += 1

    def _sequence(self) -> tuple[int, int]:
        begin = end = self._state()
        while self._peek() not in ("", "|", ")"):
            place = self._at
            first, last = self._atom()
            behind = self._at
            least, most = self._times()
            after = self._at
            if (least, most) != (1, 1):
                first, last = self._repeated(place, behind, least, most)
                self._at = after
            self.empty[end].append(first)
            end = last
        return begin, end

    def _repeated(self, place: int, behind: int, least: int, most: int) -> tuple[int, int]:
        """Build what is written between two places so many times; ``most`` -1 is any number."""
        begin = end = self._state()
        for index in range(max(least, most, 1 if most < 0 else 0)):
            self._at = place
            first, last = self._atom()
            if self._at != behind:
                raise _UnknownError
            self.empty[end].append(first)
            if index >= least:
                self.empty[first].append(last)  # may be left out
            end = last
            if most < 0 and index >= least - 1:
                self.empty[last].append(first)  # once more
        return begin, end

    def _times(self) -> tuple[int, int]:
        times = {"*": (0, -1), "+": (1, -1), "?": (0, 1)}.get(self._peek())
        if times is not None:
            self._at += 1
        elif self._peek() == "{":
            close = self._text.find("}", self._at)
            low, comma, high = self._text[self._at + 1 : close].partition(",")
            if close < 0 or not low.isdecimal() or (high and not high.isdecimal()):
                raise _UnknownError
            self._at = close + 1
            times = (int(low), (int(high) if high else -1) if comma else int(low))
        else:
            return 1, 1
        if self._peek() == "?":  # lazy: matches the same
            self._at += 1
        if self._peek() in ("*", "+", "?", "{"):
            raise _UnknownError
        return times

    def _atom(self) -> tuple[int, int]:
        character = self._take()
        if character == "(":
            return self._group()
        begin, end = self._state(), self._state()
        self.steps[begin].append((self._characters(character), end))
        return begin, end

    def _group(self) -> tuple[int, int]:
        if self._text.startswith("?:", self._at):
            self._at += 2
        elif self._text.startswith("?P<", self._at) or self._text.startswith("?<", self._at):
            self._at = self._text.find(">", self._at) + 1
            if not self._at:
                raise _UnknownError
        elif self._peek() == "?":
            raise _UnknownError
        found = self._alternatives()
        if self._take() != ")":
            raise _UnknownError
        return found

    def _characters(self, character: str) -> Ranges:
        if character == ".":
            return ((0, 9), (11, _LAST))
        if character == "[":
            return self._class()
        if character == "\\":
            return self._escape()
        if character in _SPECIAL:
            raise _UnknownError
        return ((ord(character), ord(character)),)

    def _escape(self) -> Ranges:
        character = self._take()
        if character in _CLASSES:
            return _CLASSES[character]
        if character.lower() in _CLASSES:
            return _inverted(_CLASSES[character.lower()])
        if character in _ESCAPES:
            return ((_ESCAPES[character], _ESCAPES[character]),)
        if character.isalnum():
            raise _UnknownError
        return ((ord(character), ord(character)),)

    def _class(self) -> Ranges:
        negated = self._peek() == "^"
        if negated:
            self._at += 1
        found: list[tuple[int, int]] = []
        while not found or self._peek() != "]":
            low = self._member()
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._member()
                if len(low) > 1 or len(high) > 1:
                    raise _UnknownError
                low = ((low[0][0], high[0][1]),)
            found += low
        self._at += 1
        return _inverted(found) if negated else tuple(found)

    def _member(self) -> Ranges:
        character = self._take()
        if character == "[" and self._peek() == ":":
            raise _UnknownError
        if character == "\\":
            return self._escape()
        return ((ord(character), ord(character)),)


def _inverted(ranges: Iterable[tuple[int, int]]) -> Ranges:
    found: list[tuple[int, int]] = []
    low = 0
    for first, last in sorted(ranges):
        if first > low:
            found.append((low, first - 1))
        low = max(low, last + 1)
    if low <= _LAST:
        found.append((low, _LAST))
    return tuple(found)
