"""Merging downwards: what listener, host and route say together about header fields, error pages and the log (N18).

Of each level its policies count first, in the order in which they are named, then what it says itself. Per field name:

- ``set``: exactly this line, in place of a ``set`` above; lines that levels above ``add`` stay.
- ``add``: one more line.
- ``replace``: exactly this line, whatever the levels above say.
- ``remove``: no line, whatever the levels above say; deeper levels may set or add again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from torchgate.schema.routes import ErrorPage, HeaderEdit, HeaderEdits, Inherited


class Edit(msgspec.Struct, frozen=True):
    """One thing a level says about a field; ``verb`` is the key it was written under."""

    verb: str
    edit: HeaderEdit


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What one level says, its policies included.

    Attributes:
        request, response: Edits, in the order in which they apply.
        pages: Error pages, those to be tried first in front.
        log: Share of successful requests that are logged; None when it says nothing.
    """

    request: tuple[Edit, ...] = ()
    response: tuple[Edit, ...] = ()
    pages: tuple[ErrorPage, ...] = ()
    log: float | None = None


NOTHING = Said()


def merge(levels: Iterable[Sequence[Edit]]) -> tuple[HeaderEdit, ...]:
    """Return the edits of all levels, outermost first, as one list to be applied in order."""
    bases: dict[str, HeaderEdit | None] = {}
    added: dict[str, list[HeaderEdit]] = {}
    for level in levels:
        for said in level:
            name = said.edit.name
            bases.setdefault(name, None)
            if said.verb == "add":
                added.setdefault(name, []).append(said.edit)
                continue
            if said.verb != "set":
                added.pop(name, None)
            bases[name] = said.edit
    found: list[HeaderEdit] = []
    for name, base in bases.items():
        if base is not None:
            found.append(base)
        found += added.get(name, ())
    return tuple(found)


class Merger:
    """Makes the shared tables of `torchgate.schema.front.FrontConfig`; equal entries are kept once.

    Attributes:
        edits, pages, by_host: The tables.
    """

    def __init__(self) -> None:
        self.edits: list[HeaderEdits] = []
        self.pages: list[tuple[ErrorPage, ...]] = []
        self.by_host: list[dict[str, Inherited]] = []
        self._known_edits: dict[HeaderEdits, int] = {}
        self._known_pages: dict[tuple[ErrorPage, ...], int] = {}
        self._known_hosts: dict[tuple[tuple[str, Inherited], ...], int] = {}

    def inherited(self, levels: Sequence[Said]) -> Inherited:
        """Return what levels, outermost first, say together."""
        logs = [level.log for level in levels if level.log is not None]
        return Inherited(
            edits=self._edits(levels),
            pages=self._pages(levels),
            log=logs[-1] if logs else 1.0,
        )

    def hosts(self, variants: Sequence[tuple[str, Inherited]]) -> int:
        """Return the index of a table of variants; -1 for none."""
        if not variants:
            return -1
        key = tuple(variants)
        if key not in self._known_hosts:
            self._known_hosts[key] = len(self.by_host)
            self.by_host.append(dict(variants))
        return self._known_hosts[key]

    def _edits(self, levels: Sequence[Said]) -> int:
        merged = HeaderEdits(
            request=merge(level.request for level in levels),
            response=merge(level.response for level in levels),
        )
        if not merged.request and not merged.response:
            return -1
        if merged not in self._known_edits:
            self._known_edits[merged] = len(self.edits)
            self.edits.append(merged)
        return self._known_edits[merged]

    def _pages(self, levels: Sequence[Said]) -> int:
        pages = tuple(page for level in reversed(levels) for page in level.pages)
        if not pages:
            return -1
        if pages not in self._known_pages:
            self._known_pages[pages] = len(self.pages)
            self.pages.append(pages)
        return self._known_pages[pages]
