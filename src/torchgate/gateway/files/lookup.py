"""From a path to a file, its index, its compressed neighbours. A disk thread runs this; nothing here touches the loop.

Read next: `torchgate.gateway.files.representation`.
"""

from __future__ import annotations

import errno
import os
import stat
import time

from torchgate.errors import Cause, RequestError
from torchgate.gateway.compress import MIN_BYTES, encode, is_text
from torchgate.gateway.files.beneath import is_missing, open_beneath, open_root
from torchgate.gateway.files.media_types import MediaTypes
from torchgate.gateway.files.representation import (
    SMALL_BYTES,
    Descriptor,
    Found,
    Identity,
    Representation,
    identity_of,
)
from torchgate.schema.routes import StaticAction

_ENDINGS = {"br": ".br", "zstd": ".zst", "gzip": ".gz"}
_MADE = ("zstd", "gzip")  # codings that can be made here
_WELL_KNOWN = ".well-known"
_TRIES = 4
_PAUSE_S = 0.005
_FULL = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS))


class Missing(Exception):
    """There is nothing to be sent for a path."""


class Changed(Exception):
    """A file was written while it was being read."""


class Tree:
    """The files of one route.

    Args:
        action: What was configured.
        compress: Whether text may be compressed here for clients that ask for it.
    """

    def __init__(self, action: StaticAction, *, compress: bool) -> None:
        self._root = action.root
        self.types = MediaTypes(action.types)
        self._index = tuple(os.fsencode(name.lstrip("/")) for name in action.index)
        self._neighbours = tuple(
            (coding.encode(), _ENDINGS[coding].encode())
            for coding in action.precompressed
            if coding in _ENDINGS
        )
        made = _MADE if compress else ()
        self._order = tuple(
            dict.fromkeys(
                (*(coding for coding, _ in self._neighbours), *(c.encode() for c in made))
            )
        )
        self._made = frozenset(c.encode() for c in made)
        self._dotfiles = action.dotfiles
        control = action.cache_control.encode("latin-1")
        self._common = b"cache-control: %b\r\n" % control if control else b""
        self._fallback = action.fallback.strip("/").encode()

    def find(self, path: str, known: Found | None) -> Found:
        """Return what a path leads to.

        Args:
            path: Decoded, beginning with a slash.
            known: What it led to before; returned again when nothing has changed.

        Raises:
            Missing: Nothing, or nothing that may be sent.
            RequestError: It is there and can't be read, or the disk fails.
        """
        relative = self._relative(path)
        try:
            root_fd = self._open_root()
            try:
                for _ in range(_TRIES):
                    try:
                        return self._find(root_fd, relative, known, path.endswith("/"))
                    except Changed:
                        time.sleep(_PAUSE_S)
            finally:
                os.close(root_fd)
        except OSError as error:
            raise _refusal(error) from error
        raise RequestError(
            Cause.DISK_BUSY, "The file is being written; it never held still.", retry_after_s=1
        )

    def _open_root(self) -> int:
        """Open the root.

        Raises:
            RequestError: It is gone: a disk that was unmounted must not look like files that were taken away.
            OSError: It can't be opened.
        """
        try:
            return open_root(self._root)
        except OSError as error:
            if not is_missing(error):
                raise
            raise RequestError(
                Cause.DISK_ERROR,
                "The folder of this route is not there; the gateway's log has more.",
            ) from error

    def _relative(self, path: str) -> bytes:
        """Return a path below the root.

        Raises:
            Missing: A segment is hidden, or no name at all.
        """
        names = [name for name in path.split("/") if name]
        for i, name in enumerate(names):
            if name in (".", "..") or "\0" in name:
                raise Missing
            if name.startswith(".") and not self._dotfiles and (i or name != _WELL_KNOWN):
                raise Missing
        return "/".join(names).encode("utf-8", "surrogateescape")

    def _find(
        self,
        root_fd: int,
        relative: bytes,
        known: Found | None,
        is_directory: bool,  # noqa: FBT001 - from `find` only
    ) -> Found:
        descriptor, found = _open(root_fd, relative)
        index = stat.S_ISDIR(found.st_mode)
        if index:
            relative, descriptor, found = self._open_index(root_fd, relative)
        if not stat.S_ISREG(found.st_mode) or (is_directory and not index):
            raise Missing
        opened = {b"": (descriptor, found)}
        for coding, ending in self._neighbours:
            neighbour = _neighbour(root_fd, relative + ending, found)
            if neighbour is not None:
                opened[coding] = neighbour
        if known is not None and _unchanged(known, opened):
            return known
        return self._describe(relative, opened, index=index)

    def _open_index(
        self, root_fd: int, directory: bytes
    ) -> tuple[bytes, Descriptor, os.stat_result]:
        for name in self._index:
            relative = directory + b"/" + name if directory else name
            try:
                descriptor, found = _open(root_fd, relative)
            except OSError as error:
                if not is_missing(error):
                    raise
            else:
                if stat.S_ISREG(found.st_mode):
                    return relative, descriptor, found
        raise Missing

    def _describe(
        self,
        relative: bytes,
        opened: dict[bytes, tuple[Descriptor, os.stat_result]],
        *,
        index: bool,
    ) -> Found:
        name = relative.decode("utf-8", "replace")
        content_type = self.types.of(name)
        size = opened[b""][1].st_size
        packs = self._made if MIN_BYTES <= size <= SMALL_BYTES and is_text(content_type) else set()
        vary = [b"accept-encoding"] if packs or len(opened) > 1 else []
        if relative == self._fallback:  # stands for missing paths, for clients that take pages
            vary.append(b"accept")
        representations = {}
        for coding, (descriptor, found) in opened.items():
            made = self._represent(
                coding, identity_of(found), found.st_size, content_type, b", ".join(vary)
            )
            if found.st_size > SMALL_BYTES:
                made.descriptor = descriptor
            else:
                made.body = _read(descriptor.fd, found.st_size)
            representations[coding] = made
        order = tuple(c for c in self._order if c in opened or c in packs)
        return Found(name, representations, order, index=index)

    def pack(self, found: Found, coding: bytes) -> Representation:
        """Return what was found compressed to ``coding``; always to the same bytes, which its tag stands for."""
        plain = found.representations[b""]
        body = encode(plain.body or b"", coding)
        made = self._represent(coding, plain.identity, len(body), plain.content_type, plain.vary)
        made.body = body
        made.made = True
        return made

    def _represent(
        self, coding: bytes, identity: Identity, size: int, content_type: bytes, vary: bytes
    ) -> Representation:
        now_s = time.time()  # noqa: TID251 - compared with the file's
        return Representation(
            coding, identity, size, content_type, self._common, vary=vary, now_s=now_s
        )


def _open(root_fd: int, relative: bytes) -> tuple[Descriptor, os.stat_result]:
    descriptor = Descriptor(open_beneath(root_fd, relative or b"."))
    return descriptor, os.fstat(descriptor.fd)


def _neighbour(
    root_fd: int, relative: bytes, original: os.stat_result
) -> tuple[Descriptor, os.stat_result] | None:
    """Open a compressed neighbour.

    One that is older than the file was made from another state of it, and none of something is empty: such a one was
    left by a compressor that was stopped, or had no room.
    """
    try:
        descriptor, found = _open(root_fd, relative)
    except OSError as error:
        if error.errno in _FULL:
            raise
        return None  # the file itself can be sent all the same
    if not stat.S_ISREG(found.st_mode) or found.st_mtime_ns < original.st_mtime_ns:
        return None
    if not found.st_size and original.st_size:
        return None
    return descriptor, found


def _read(fd: int, size: int) -> bytes:
    """Read a small file whole.

    Raises:
        OSError: It can't be read.
        Changed: It has another size than it said it had.
    """
    pieces = []
    at = 0
    while at <= size:
        piece = os.pread(fd, size + 1 - at, at)
        if not piece:
            break
        pieces.append(piece)
        at += len(piece)
    if at != size:
        raise Changed
    return b"".join(pieces)


def _unchanged(known: Found, opened: dict[bytes, tuple[Descriptor, os.stat_result]]) -> bool:
    """Whether the files are those that were read before.

    A file that changed just before it was read could have changed again within one step of the file system's clock.
    """
    files = {c: one for c, one in known.representations.items() if not one.made}
    return files.keys() == opened.keys() and all(
        one.identity == identity_of(opened[coding][1]) and one.settled
        for coding, one in files.items()
    )


def _refusal(error: OSError) -> Exception:
    """Return what is told to the client about an error of the disk; never a path."""
    if is_missing(error) or error.errno == errno.ENXIO:
        return Missing()
    if error.errno in (errno.EACCES, errno.EPERM):
        return RequestError(Cause.FORBIDDEN, "The gateway may not read this file.")
    if error.errno in _FULL:
        return RequestError(
            Cause.DISK_BUSY, "The gateway has no file descriptor or memory left.", retry_after_s=1
        )
    return RequestError(Cause.DISK_ERROR, "The file can't be read; the gateway's log says why.")
