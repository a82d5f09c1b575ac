"""A name server of the test's own: UDP, answers A, AAAA and SRV from a table, with a time to live of choice."""

import socket
import struct
import threading
import time

A, AAAA, SRV = 1, 28, 33
NXDOMAIN, SERVFAIL = 3, 2


class NameServer:
    """Answers until closed.

    Attributes:
        records: ``(name, type) -> [text, ...]``; SRV texts are ``priority weight port target``.
        ttl: Seconds, of every record.
        code: What is answered instead, when not 0.
        failing: ``(name, type)`` that are answered with SERVFAIL.
        silent: Answers nothing at all.
        asked: Names asked for, with the time of each question.
    """

    def __init__(self):
        self.records = {}
        self.ttl = 1
        self.code = 0
        self.failing = set()
        self.silent = False
        self.asked = []
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._sock.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._sock.sendto(b"", self._sock.getsockname())
        self._thread.join(5)
        self._sock.close()

    def _run(self):
        while True:
            data, client = self._sock.recvfrom(4096)
            if not data:
                return
            name, kind, end = _question(data)
            self.asked.append((name, kind, time.monotonic()))
            if not self.silent:
                self._sock.sendto(self._answer(data, name, kind, end), client)

    def _answer(self, data, name, kind, end):
        texts = self.records.get((name, kind), [])
        known = any(key[0] == name for key in self.records)
        code = self.code or (0 if known else NXDOMAIN)
        if (name, kind) in self.failing:
            code = SERVFAIL
        texts = texts if code == 0 else []
        head = data[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, len(texts), 0, 0)
        records = b"".join(self._record(kind, text) for text in texts)
        return head + data[12:end] + records

    def _record(self, kind, text):
        if kind == A:
            body = socket.inet_aton(text)
        elif kind == AAAA:
            body = socket.inet_pton(socket.AF_INET6, text)
        else:
            priority, weight, port, target = text.split(" ", 3)
            body = struct.pack(">HHH", int(priority), int(weight), int(port)) + _wire(target)
        return b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, self.ttl, len(body)) + body


def _question(data):
    labels = []
    at = 12
    while size := data[at]:
        labels.append(data[at + 1 : at + 1 + size].decode().lower())
        at += 1 + size
    (kind,) = struct.unpack_from(">H", data, at + 1)
    return ".".join(labels), kind, at + 5


def _wire(name):
    labels = name.rstrip(".").split(".")
    return b"".join(bytes([len(one)]) + one.encode() for one in labels) + b"\0"
