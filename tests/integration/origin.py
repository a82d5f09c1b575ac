"""A scripted origin server on raw sockets: answers byte for byte as told, and keeps what it saw.

A script is called in the thread of its connection with what was asked and the socket; it writes whatever it wants, and
returns False to have the connection closed (cleanly) or `RESET` to have it reset. Bytes in place of a script are sent.
"""

import contextlib
import socket
import struct
import threading
import time

RESET = "reset"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Seen:
    """One request as it came."""

    def __init__(self, raw, body, connection, complete):
        line, *fields = raw[:-4].split(b"\r\n")
        self.raw = raw
        self.line = line
        self.method, self.target, self.version = line.split(b" ")
        self.fields = [(n.lower(), v.strip()) for n, _, v in (f.partition(b":") for f in fields)]
        self.body = body
        self.connection = connection
        self.complete = complete

    def values(self, name):
        return [value for key, value in self.fields if key == name]

    def value(self, name):
        (value,) = self.values(name)
        return value


class Origin:
    """Listens on a port of its own (or on ``unix``) while it is entered.

    ``script``: for every request; ``by_path``: for those with that target. ``reads_body`` False calls the script as
    soon as the head is there.
    """

    def __init__(self, script=OK, *, by_path=None, unix=None):
        self.script = script
        self.by_path = dict(by_path or {})
        self.reads_body = True
        self.seen = []
        self.open = 0  # connections now
        self.accepted = 0
        self.lost = []  # numbers of connections that ended
        self._changed = threading.Condition()
        self._sockets = set()
        self._closing = False
        if unix is None:
            self._listening = socket.create_server(("127.0.0.1", 0), backlog=256)
            self.port = self._listening.getsockname()[1]
        else:
            self._listening = socket.socket(socket.AF_UNIX)
            self._listening.bind(str(unix))
            self._listening.listen(256)
            self.port = 0

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        """Refuse connections from now on, and end those there are."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for sock in tuple(self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def wait(self, condition, timeout_s=10.0):
        """Wait until ``condition(self)`` holds; return its value."""
        end = time.monotonic() + timeout_s
        with self._changed:
            while not (value := condition(self)):
                left = end - time.monotonic()
                assert left > 0, f"the origin saw {[s.line for s in self.seen]}"
                self._changed.wait(min(left, 0.1))
        return value

    def requests(self, count=1, timeout_s=10.0):
        """Return the requests once there are ``count``."""
        return self.wait(lambda o: len(o.seen) >= count and list(o.seen), timeout_s)

    def _accept(self):
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            with self._changed:
                self.accepted += 1
                self.open += 1
                number = self.accepted
                self._sockets.add(sock)
                self._changed.notify_all()
            threading.Thread(target=self._serve, args=(sock, number), daemon=True).start()

    def _serve(self, sock, number):
        buffer = b""
        how = False
        try:
            while True:
                raw, buffer = _until(sock, buffer, b"\r\n\r\n")
                if not raw:
                    break
                seen = Seen(raw, b"", number, complete=True)
                if self.reads_body:
                    seen.body, buffer, seen.complete = _read_body(sock, buffer, seen)
                else:
                    seen.early = buffer
                self._note(seen)
                script = self.by_path.get(seen.target.partition(b"?")[0].decode(), self.script)
                if isinstance(script, bytes):
                    sock.sendall(script)
                    continue
                how = script(seen, sock)
                if how is False or how == RESET or not seen.complete:
                    break
        except OSError:
            pass
        finally:
            if how == RESET:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
            with self._changed:
                self.open -= 1
                self.lost.append(number)
                self._sockets.discard(sock)
                self._changed.notify_all()

    def _note(self, seen):
        with self._changed:
            self.seen.append(seen)
            self._changed.notify_all()


def _until(sock, buffer, mark):
    while mark not in buffer:
        piece = sock.recv(65536)
        if not piece:
            return b"", b""
        buffer += piece
    head, _, rest = buffer.partition(mark)
    return head + mark, rest


def _read_body(sock, buffer, seen):
    lengths = seen.values(b"content-length")
    if seen.values(b"transfer-encoding") == [b"chunked"]:
        pieces = []
        while True:
            line, buffer = _until(sock, buffer, b"\r\n")
            if not line:
                return b"".join(pieces), b"", False
            size = int(line, 16)
            data, buffer = _exactly(sock, buffer, size + 2)
            if len(data) < size + 2:
                return b"".join(pieces) + data, b"", False
            if not size:
                return b"".join(pieces), buffer, True
            pieces.append(data[:-2])
    size = int(lengths[0]) if lengths else 0
    data, rest = _exactly(sock, buffer, size)
    return data, rest, len(data) == size


def _exactly(sock, buffer, size):
    pieces = [buffer]
    have = len(buffer)
    while have < size:
        piece = sock.recv(min(1 << 20, size - have))
        if not piece:
            break
        pieces.append(piece)
        have += len(piece)
    data = b"".join(pieces)
    return data[:size], data[size:]
