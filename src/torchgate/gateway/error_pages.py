"""What is sent in place of an error: a page of the user's, a redirect, another status. Files are read once, at start.

Who gets a page is asked of ``Accept``: people do, programs that ask for JSON keep problem details, since a page would
break them. Clients of models get pages only when they ask for the page's type by name. The cause of the error stays in
log and metrics whatever is sent.
"""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import msgspec

from torchgate.errors import ConfigError, RequestError
from torchgate.gateway.files.wish import weights
from torchgate.routing.redirects import Location
from torchgate.schema.problem import PROBLEM_TYPE, STATUS, TITLE
from torchgate.schema.routes import MAX_ERROR_PAGE_BYTES, ErrorPage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchgate.gateway.exchange import Exchange, Headers
    from torchgate.wire.answer import AnswerHead

_JSON = (b"application/json", b"application/problem+json")
_FOUND = 302
VARY_ACCEPT = ((b"vary", b"accept"),)
"""Of whatever is chosen by ``Accept``: caches have to know."""
_KEPT = frozenset((b"allow", b"proxy-authenticate", b"retry-after", b"www-authenticate"))


@dataclasses.dataclass(frozen=True, slots=True)
class Instead:
    """An answer in place of an error.

    Attributes:
        status: Its status.
        content_type: Media type of the body, or empty.
        body: The body.
        headers: Further field lines.
    """

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


class ErrorPages:
    """The error pages of one route, listener or host.

    Args:
        pages: What was configured; the first that fits is taken.
        bodies: Files read already, by path; what is read here is added.

    Raises:
        ConfigError: A file can't be read or is too large, or a redirect leads nowhere.
    """

    __slots__ = ("_pages", "upstream")

    def __init__(self, pages: Sequence[ErrorPage], bodies: dict[str, bytes] | None = None) -> None:
        bodies = {} if bodies is None else bodies
        for page in pages:
            if page.file and page.file not in bodies:
                bodies[page.file] = _read(page.file)
        self._pages = tuple(_Page(page, bodies) for page in pages)
        self.upstream = any(
            page.upstream for page in pages
        )  # whether answers of servers are looked at

    def of_error(self, exchange: Exchange, error: RequestError) -> Instead | None:
        """Return what to send in place of an error of ours, or None for the error itself."""
        return self._find(exchange, STATUS[error.cause], error.cause, upstream=False)

    def varies(self, error: RequestError) -> Headers:
        """Return the fields of an error that no page was wanted for, while another client would get one."""
        status = STATUS[error.cause]
        fits = any(page.fits(status, error.cause, upstream=False) for page in self._pages)
        return VARY_ACCEPT if fits else ()

    def of_upstream(self, exchange: Exchange, head: AnswerHead) -> Instead | None:
        """Return what to send in place of a server's answer, or None to pass that on.

        What the client needs to do better next time stays while the status does: a 401 without its challenge is no
        use (RFC 9110 section 11.6.1).
        """
        if not self.upstream:
            return None
        instead = self._find(exchange, head.status, "", upstream=True)
        if instead is None or instead.status != head.status:
            return instead
        kept = tuple((name, value) for name, value in head.fields if name in _KEPT)
        return dataclasses.replace(instead, headers=(*instead.headers, *kept))

    def _find(
        self, exchange: Exchange, status: int, cause: str, *, upstream: bool
    ) -> Instead | None:
        for page in self._pages:
            if page.fits(status, cause, upstream=upstream) and page.is_wanted(exchange):
                return page.make(exchange, status)
        return None


class _Page:
    """One error page, ready to be sent."""

    __slots__ = ("_body", "_location", "_page", "_type")

    def __init__(self, page: ErrorPage, bodies: dict[str, bytes]) -> None:
        self._page = page
        self._body = bodies[page.file] if page.file else None
        self._location = Location(page.redirect) if page.redirect else None
        self._type = page.content_type.partition(";")[0].strip().lower().encode("latin-1")

    def fits(self, status: int, cause: str, *, upstream: bool) -> bool:
        page = self._page
        if upstream and (not page.upstream or page.causes):
            return False
        if page.statuses and status not in page.statuses:
            return False
        return status >= 400 and (not page.causes or cause in page.causes)

    def is_wanted(self, exchange: Exchange) -> bool:
        """Whether this client takes the page; one that has neither body nor target is for all."""
        if self._body is None and self._location is None:
            return True
        accept = b",".join(value for name, value in exchange.headers if name == b"accept")
        program = bool(exchange.model) or exchange.oip
        if not accept:
            return not program
        wanted = weights(accept)
        major = self._type.partition(b"/")[0] + b"/*"
        named = wanted.get(self._type, wanted.get(major, -1.0))
        if named >= 0:
            return named > 0
        json = any(wanted.get(kind, 0.0) > 0 for kind in _JSON)
        return not program and not json and wanted.get(b"*/*", 0.0) > 0

    def make(self, exchange: Exchange, status: int) -> Instead:
        page = self._page
        if self._location is not None:
            from torchgate.gateway.placeholders import Placeholders  # which imports our importers

            where = self._location.fill(Placeholders(exchange))
            moved = page.status if 300 <= page.status < 400 else _FOUND
            fields = ((b"location", where), (b"cache-control", b"no-store"), *VARY_ACCEPT)
            return Instead(moved, "", b"", fields)
        status = page.status or status
        if self._body is not None:
            return Instead(status, page.content_type, self._body, VARY_ACCEPT)
        problem = {
            "type": "about:blank",  # RFC 9457 section 4.2.1: nothing but the status is told
            "title": TITLE.get(status, ""),
            "status": status,
            "request_id": exchange.request_id.decode("ascii"),
        }
        return Instead(status, PROBLEM_TYPE, msgspec.json.encode(problem))


def _read(path: str) -> bytes:
    try:
        size = os.stat(path).st_size
        if size > MAX_ERROR_PAGE_BYTES:
            raise ConfigError(
                f"error page {path} has {size} bytes; at most {MAX_ERROR_PAGE_BYTES} are kept in memory"
            )
        with open(path, "rb") as file:
            return file.read(MAX_ERROR_PAGE_BYTES)
    except OSError as error:
        raise ConfigError(
            f"error page {path} can't be read: {error.strerror}",
            "It is read once, when the gateway starts, with the gateway's permissions.",
        ) from error
