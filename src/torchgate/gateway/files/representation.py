"""What can be sent for a path: a file and its compressed neighbours, each with its own validators and field lines.

An entity tag is strong: it is made of inode, size, time of last change and time of last status change, in nanoseconds,
and of the coding. Bytes that changed without moving any of these would have had to be written past the file system.
Size and modification time alone would not do: copies that keep the time (``cp -p``, ``rsync -t``) change the bytes of a
file under its name. They are hashed, so that a tag does not tell inode numbers.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from torchgate.gateway.files.disk import Disk
from torchgate.gateway.respond import http_date

if TYPE_CHECKING:
    from torchgate.gateway.exchange import Exchange

SMALL_BYTES = 256 * 1024
"""Files up to this size are read at once and sent, and kept, as bytes."""

_NS = 1_000_000_000

Identity = tuple[int, int, int, int, int]
"""Device, inode, size, mtime and ctime (ns): the same file with the same bytes."""


def identity_of(found: os.stat_result) -> Identity:
    """Return what tells one state of a file from another."""
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class Descriptor:
    """An open file that several answers may be sent from; closed when the last of them is done.

    Args:
        fd: The descriptor, which this object owns from now on.
    """

    __slots__ = ("fd", "users")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.users = 0  # changed on the loop only

    def release(self, disk: Disk) -> None:
        """One user less; without any, it is closed, by a thread."""
        self.users -= 1
        if self.users <= 0 and self.fd >= 0:
            fd, self.fd = self.fd, -1
            disk.close_file(fd)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class Representation:
    """One file in one coding.

    Args:
        coding: Content coding; empty for none.
        identity: Of the file, or of the one it was made from.
        size: Bytes.
        content_type: Media type of the file it stands for.
        common: Field lines that every file of the route gets.
        vary: Names of the request fields that decided for it, or empty.
        now_s: The time now; no date beyond it is told (RFC 9110 section 8.8.2.1).

    Attributes:
        tag: Strong entity tag. modified_s: Last change, whole seconds since 1970.
        body: The bytes of a small file. descriptor: The open file, of a large one.
        settled: The file had not changed just before it was read, within one step of some file system's clock.
        made: It was compressed here.
        unchanged: Field lines of 304 (RFC 9110 section 15.4.5). partial: Those of 206, but for type, length and range.
        whole: Those of 200.
    """

    __slots__ = (
        "body",
        "coding",
        "content_type",
        "descriptor",
        "identity",
        "made",
        "modified_s",
        "partial",
        "settled",
        "size",
        "tag",
        "unchanged",
        "vary",
        "whole",
    )

    def __init__(
        self,
        coding: bytes,
        identity: Identity,
        size: int,
        content_type: bytes,
        common: bytes,
        *,
        vary: bytes,
        now_s: float,
    ) -> None:
        self.coding = coding
        self.vary = vary
        self.identity = identity
        self.content_type = content_type
        self.size = size
        self.modified_s = identity[3] // _NS
        self.settled = now_s * _NS - identity[3] > 2 * _NS
        self.made = False
        self.tag = _tag(identity, coding)
        self.body: bytes | None = None
        self.descriptor: Descriptor | None = None
        self.unchanged = b"%betag: %b\r\nlast-modified: %b\r\n%b" % (
            b"vary: %b\r\n" % vary if vary else b"",
            self.tag,
            http_date(max(0, min(self.modified_s, int(now_s)))),
            common,
        )
        self.partial = b"%b%baccept-ranges: bytes\r\nx-content-type-options: nosniff\r\n" % (
            self.unchanged,
            b"content-encoding: %b\r\n" % coding if coding else b"",
        )
        self.whole = b"content-type: %b\r\ncontent-length: %d\r\n%b" % (
            content_type,
            size,
            self.partial,
        )


class Found:
    """What a path leads to.

    Args:
        name: Path of the file below the root, for its media type.
        representations: Coding -> representation; the empty coding is always there.
        order: Codings, the preferred ones first.
        index: Whether the path is a directory and this its index.

    Attributes:
        checked_ns: When it was last compared with the disk, CLOCK_MONOTONIC ns.
        held: Bytes that a cache counts for it; 0 when it is in none.
        used: Asked for since the cache last looked for something to let go.
        packing: Codings that the bytes are being compressed to.
    """

    __slots__ = (
        "checked_ns",
        "held",
        "index",
        "name",
        "order",
        "packing",
        "representations",
        "used",
    )

    def __init__(
        self,
        name: str,
        representations: dict[bytes, Representation],
        order: tuple[bytes, ...],
        *,
        index: bool,
    ) -> None:
        self.name = name
        self.representations = representations
        self.order = order
        self.index = index
        self.checked_ns = 0
        self.used = False
        self.held = 0
        self.packing: dict[bytes, list[Exchange]] = {}

    def choose(self, codings: dict[bytes, float]) -> bytes:
        """Return the coding for a client by its weights (RFC 9110 section 12.5.3), ours in order when equal.

        May return one that has to be made first: in `order`, not in `representations`. A client that refuses
        everything gets the file as it is, which the RFC allows and which helps more than 406.
        """
        best, weight = b"", codings.get(b"identity", 0.0)
        for coding in self.order:
            wanted = codings.get(coding, codings.get(b"*", 0.0))
            if wanted > weight or (wanted == weight > 0 and not best):
                best, weight = coding, wanted
        return best

    @property
    def bytes(self) -> int | None:
        """Bytes this takes in memory; None when a part of it is not in memory."""
        total = 0
        for representation in self.representations.values():
            if representation.body is None:
                return None
            total += len(representation.body) + 1024
        return total


def _tag(identity: Identity, coding: bytes) -> bytes:
    text = b"%d-%d-%d-%d-%s" % (*identity[1:], coding)
    return b'"%s"' % hashlib.blake2b(text, digest_size=12).hexdigest().encode()
