"""The worker's end of a link over a real socket pair: what leaves when, and what a dead gateway does."""

import os
import socket

import pytest

from torchgate.link.arena import ArenaReader, create_arena
from torchgate.link.control import LinkClosed
from torchgate.wire.frames import Frame, FrameType
from torchgate.wire.reader import FrameReader
from torchgate.worker.gateway_link import GatewayLink


def make_link() -> tuple[GatewayLink, socket.socket]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    return GatewayLink(ours, ArenaReader(create_arena()), gateway=0), theirs


def arrived(sock: socket.socket, reader: FrameReader) -> list[Frame]:
    try:
        return reader.feed(sock.recv(1 << 20))
    except BlockingIOError:
        return []


def test_the_gateway_gets_the_first_of_many_answers_before_the_last_is_written() -> None:
    link, gateway = make_link()
    reader = FrameReader()
    for number in range(20):
        link.add(FrameType.RESULT, number, 0, b"meta", [b"answer %d" % number])
    early = arrived(gateway, reader)
    assert 0 < len(early) < 20
    assert link.out_bytes > 0
    link.flush()
    assert link.out_bytes == 0
    frames = early + arrived(gateway, reader)
    assert [(frame.id, frame.body) for frame in frames] == [
        (number, b"answer %d" % number) for number in range(20)
    ]
    link.close()
    gateway.close()


def test_what_the_socket_does_not_take_stays_in_order() -> None:
    link, gateway = make_link()
    reader = FrameReader()
    body = os.urandom(15_000)
    sent = 0
    while not link.blocked:
        for _ in range(20):
            link.add(FrameType.RESULT, sent, 0, b"meta", [body])
            sent += 1
        link.flush()
    for _ in range(20):  # nothing is tried while the socket is full
        link.add(FrameType.RESULT, sent, 0, b"meta", [body])
        sent += 1
    frames: list[Frame] = []
    while link.out_bytes or len(frames) < sent:
        frames += arrived(gateway, reader)
        link.flush()
    assert [frame.id for frame in frames] == list(range(sent))
    assert all(frame.body == body for frame in frames)
    link.close()
    gateway.close()


def test_a_gateway_that_dies_among_many_answers_is_noticed_by_the_flush() -> None:
    link, gateway = make_link()
    gateway.close()
    for number in range(20):
        link.add(FrameType.RESULT, number, 0, b"meta", [b"answer"])
    with pytest.raises(LinkClosed):
        link.flush()
    link.close()
