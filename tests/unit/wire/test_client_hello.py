"""What a TLS client says first, in whatever records and pieces it comes."""

import ssl

import pytest

from torchgate.errors import ProtocolError
from torchgate.wire.client_hello import MAX_HELLO_BYTES, read_client_hello


def hello(name=None, protocols=(), version=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if version:
        context.maximum_version = version
    if protocols:
        context.set_alpn_protocols(list(protocols))
    outgoing = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def in_records(data, size):
    message = data[5:]
    return b"".join(
        data[:3] + len(part).to_bytes(2, "big") + part
        for part in (message[at : at + size] for at in range(0, len(message), size))
    )


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("record", [12, 100, 16384])
def test_name_and_protocols_are_found_when_the_message_is_whole(version, record):
    data = in_records(hello("Www.Example.test", ["h2", "http/1.1"], version), record)
    for length in range(0, len(data), 7):
        assert read_client_hello(data[:length]) is None
    found = read_client_hello(bytearray(data) + b"more")
    assert found.name == "www.example.test"
    assert found.protocols == (b"h2", b"http/1.1")


def test_a_client_that_asks_for_no_name_has_none():
    found = read_client_hello(hello())
    assert (found.name, found.protocols) == ("", ())
    assert read_client_hello(hello("192.0.2.1")).name == ""


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x80\x2e\x01\x03\x01",  # SSL 2
        b"\x16\x02\x00\x00\x10",
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\xff\xff",
        b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",  # a ServerHello
        b"\x16\x03\x01\x00\x04\x01\xff\xff\xff",
        b"\x15\x03\x01\x00\x02\x01\x00",
    ],
)
def test_what_is_no_client_hello_is_refused(data):
    with pytest.raises(ProtocolError):
        read_client_hello(data)


def test_a_message_of_which_only_records_come_is_given_up():
    data = b"\x16\x03\x01\x00\x04\x01\x00\xff\xff" + b"\x16\x03\x01\x00\x01x" * MAX_HELLO_BYTES
    assert read_client_hello(data[:200]) is None
    with pytest.raises(ProtocolError, match="too many"):
        read_client_hello(data[:600])
