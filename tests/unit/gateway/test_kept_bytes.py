"""What the gateway remembers of heads is bounded in number, size and time."""

from torchgate.gateway.handlers import proxy_head
from torchgate.gateway.respond import HeadWriter


def test_field_lines_are_kept_for_a_second_and_only_short_ones():
    heads = HeadWriter(1000.0)
    short, long = ((b"location", b"/a?token=1"),), ((b"location", b"/" * 5000),)
    assert heads.fields(short) is heads.fields(short)
    kept = heads.fields(short)
    assert heads.fields(long) is not heads.fields(long)
    heads.tick(1001.0)
    assert heads.fields(short) is not kept
    assert heads.fields(short) == kept


def test_names_that_somebody_made_up_dont_stay():
    known: dict[bytes, bool] = {}
    made_up = [(b"x-%d" % i, b"") for i in range(5000)] + [(b"y" * 9000, b"")]
    proxy_head._collect([], made_up, known, proxy_head._may_pass)
    proxy_head._collect([], [(b"accept", b"*/*")], known, proxy_head._may_pass)
    assert len(known) <= proxy_head._KEPT_NAMES
    assert b"accept" in known
    assert max(map(len, known)) <= 64
