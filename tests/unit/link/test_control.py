"""Control link: messages and descriptors arrive whole and in order, or the link says it is closed."""

from __future__ import annotations

import os

import pytest

from torchgate.errors import ProtocolError
from torchgate.link.control import ControlLink, LinkClosed, control_pair
from torchgate.schema.messages import AttachGateway, Drain, TextReply


def test_descriptors_arrive_with_their_own_message() -> None:
    """Two messages sent together: each gets exactly its descriptors, and they work."""
    ours, theirs = control_pair()
    child = ControlLink(theirs)
    read_1, write_1 = os.pipe()
    read_2, write_2 = os.pipe()
    ours.send(AttachGateway(gateway=1, fds=2), [read_1, write_1])
    ours.send(Drain(deadline_ns=5))
    ours.send(AttachGateway(gateway=2, fds=2), [read_2, write_2])
    got = child.receive()
    assert [type(message).__name__ for message, _ in got] == [
        "AttachGateway",
        "Drain",
        "AttachGateway",
    ]
    os.write(got[2][1][1], b"two")
    assert os.read(read_2, 3) == b"two"
    for fd in (read_1, write_1, read_2, write_2, *got[0][1], *got[2][1]):
        os.close(fd)
    ours.close()
    child.close()


def test_a_message_larger_than_the_socket_buffer_is_kept_and_flushed() -> None:
    """What the socket does not take at once goes out with `flush`, bytes unharmed."""
    ours, theirs = control_pair()
    child = ControlLink(theirs)
    text = "x" * 3_000_000
    ours.send(TextReply(id=1, ok=True, text=text))
    assert ours.wants_write
    got = child.receive()
    while not got:
        ours.flush()
        got = child.receive()
    reply = got[0][0]
    assert isinstance(reply, TextReply)
    assert reply.text == text
    assert not ours.wants_write
    ours.close()
    child.close()


def test_the_last_messages_are_delivered_before_the_end_is_told() -> None:
    """A child that dies right after sending is still heard."""
    ours, theirs = control_pair()
    child = ControlLink(theirs)
    child.send(Drain(deadline_ns=1))
    child.close()
    assert ours.receive()[0][0] == Drain(deadline_ns=1)
    with pytest.raises(LinkClosed):
        ours.receive()
    ours.close()


def test_sending_to_a_dead_child_says_so() -> None:
    """The other end is gone: LinkClosed, not a broken pipe from somewhere."""
    ours, theirs = control_pair()
    theirs.close()
    with pytest.raises(LinkClosed):
        ours.send(Drain(deadline_ns=1))
    ours.close()


def test_bytes_that_are_no_message_are_refused() -> None:
    """Nonsense on the link is a ProtocolError."""
    ours, theirs = control_pair()
    theirs.sendall((5).to_bytes(4, "little") + b"\xc1\xc1\xc1\xc1\xc1")
    with pytest.raises(ProtocolError):
        ours.receive()
    ours.close()
    theirs.close()


def test_descriptors_must_be_announced() -> None:
    """A message that says two descriptors can't be sent with one."""
    ours, theirs = control_pair()
    with pytest.raises(ValueError, match="fds"):
        ours.send(AttachGateway(gateway=1, fds=2), [0])
    ours.close()
    theirs.close()
