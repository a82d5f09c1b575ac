"""The readers of first bytes take anything: they answer, wait, or refuse, and nothing else."""

from hypothesis import given
from hypothesis import strategies as st

from torchgate.errors import ProtocolError
from torchgate.wire.client_hello import read_client_hello
from torchgate.wire.proxy_protocol import read_proxy_header

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
rubbish = st.binary(max_size=300)
lines = st.builds(lambda tail: b"PROXY " + tail, st.binary(max_size=120))
binaries = st.builds(
    lambda command, family, size, tail: (
        SIGNATURE + bytes((command, family)) + size.to_bytes(2, "big") + tail
    ),
    st.sampled_from([0x20, 0x21, 0x22, 0x11]),
    st.sampled_from([0x00, 0x11, 0x21, 0x31, 0x12]),
    st.integers(0, 400),
    st.binary(max_size=400),
)
handshakes = st.builds(
    lambda body, size: (
        b"\x16\x03\x01"
        + (len(body) + 4).to_bytes(2, "big")
        + b"\x01"
        + size.to_bytes(3, "big")
        + body
    ),
    st.binary(max_size=300),
    st.integers(0, 310),
)


@given(st.one_of(rubbish, lines, binaries))
def test_a_proxy_header_is_read_awaited_or_refused(data):
    try:
        found = read_proxy_header(data)
    except ProtocolError:
        return
    if found is not None:
        assert 0 < found.size <= len(data)
        again = read_proxy_header(data[: found.size])
        assert (again.client, again.port, again.size) == (found.client, found.port, found.size)
        assert read_proxy_header(data[: found.size - 1]) is None


@given(st.one_of(rubbish, handshakes), st.integers(0, 300))
def test_a_client_hello_is_read_awaited_or_refused(data, cut):
    try:
        whole = read_client_hello(data)
    except ProtocolError:
        return
    try:
        part = read_client_hello(data[:cut])
    except ProtocolError as error:
        raise AssertionError("a beginning is refused of what is not") from error
    if part is not None:
        assert whole is not None
        assert part.name == whole.name
