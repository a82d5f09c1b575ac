"""What requests ask of a file, and whether their conditions hold (RFC 9110 sections 12.5, 13)."""

import pytest

from torchgate.gateway.files.conditions import Verdict, judge, range_counts
from torchgate.gateway.files.wish import Wish, read_date, weights, wish_of
from torchgate.wire.head import FieldBlock, Head

TAG = b'"abc"'
CHANGED_S = 784111777  # Sun, 06 Nov 1994 08:49:37 GMT
THEN = b"Sun, 06 Nov 1994 08:49:37 GMT"
BEFORE = b"Sun, 06 Nov 1994 08:49:36 GMT"
AFTER = b"Sun, 06 Nov 1994 08:49:38 GMT"
SEND, UNCHANGED, FAILED = Verdict.SEND, Verdict.UNCHANGED, Verdict.FAILED


def wish(**fields):
    lines = tuple((name.replace("_", "-").encode(), value) for name, value in fields.items())
    head = Head(b"GET", b"/", FieldBlock(1, lines))
    head.accept_encoding = fields.get("accept_encoding", b"")
    return Wish(head)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (THEN, CHANGED_S),
        (b"Sunday, 06-Nov-94 08:49:37 GMT", CHANGED_S),
        (b"Sun Nov  6 08:49:37 1994", CHANGED_S),
        (b"Thu, 01 Jan 1970 00:00:00 GMT", 0),
        (b"Thu, 29 Feb 2024 00:00:00 GMT", 1709164800),
        (b"Sunday, 06-Nov-69 08:49:37 GMT", 3150953377),
        (b"Thu, 30 Feb 2023 00:00:00 GMT", None),
        (b"Sun, 06 Nov 1994 24:00:00 GMT", None),
        (b"Sun, 06 Nov 1994 08:49:37 +0000", None),
        (b"Sun, 06 nov 1994 08:49:37 GMT", None),
        (b"Sun, 6 Nov 1994 08:49:37 GMT", None),
        (b"784111777", None),
        (b"", None),
        (b"Sun, 00 Nov 1994 08:49:37 GMT", None),
        (b"Sat, 01 Jan 0000 00:00:00 GMT", None),
    ],
)
def test_dates_in_three_forms_and_no_others(text, want):
    """RFC 9110 section 5.6.7; anything else is no date."""
    assert read_date(text) == want


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({}, SEND),
        # If-Match: strong comparison
        ({"if_match": TAG}, SEND),
        ({"if_match": b'"x", "abc"'}, SEND),
        ({"if_match": b"*"}, SEND),
        ({"if_match": b'"x"'}, FAILED),
        ({"if_match": b'W/"abc"'}, FAILED),
        ({"if_match": b"abc"}, FAILED),
        # If-Unmodified-Since, only without If-Match
        ({"if_unmodified_since": THEN}, SEND),
        ({"if_unmodified_since": BEFORE}, FAILED),
        ({"if_unmodified_since": b"yesterday"}, SEND),
        ({"if_match": TAG, "if_unmodified_since": BEFORE}, SEND),
        # If-None-Match: weak comparison
        ({"if_none_match": TAG}, UNCHANGED),
        ({"if_none_match": b'W/"abc"'}, UNCHANGED),
        ({"if_none_match": b'"x", W/"y","abc"'}, UNCHANGED),
        ({"if_none_match": b'"a,b", "abc"'}, UNCHANGED),
        ({"if_none_match": b"*"}, UNCHANGED),
        ({"if_none_match": b'"x"'}, SEND),
        ({"if_none_match": b"abc"}, SEND),
        # If-Modified-Since, only without If-None-Match
        ({"if_modified_since": THEN}, UNCHANGED),
        ({"if_modified_since": AFTER}, UNCHANGED),
        ({"if_modified_since": BEFORE}, SEND),
        ({"if_modified_since": b"yesterday"}, SEND),
        ({"if_none_match": b'"x"', "if_modified_since": AFTER}, SEND),
        # in order: what says 412 comes first
        ({"if_match": b'"x"', "if_none_match": TAG}, FAILED),
        ({"if_match": TAG, "if_none_match": TAG}, UNCHANGED),
        ({"if_unmodified_since": BEFORE, "if_modified_since": AFTER}, FAILED),
    ],
)
def test_conditions_in_the_order_of_the_rfc(fields, want):
    """RFC 9110 section 13.2.2, step by step."""
    assert judge(wish(**fields), TAG, CHANGED_S) is want


@pytest.mark.parametrize(
    ("if_range", "now_s", "counts"),
    [
        (None, CHANGED_S + 9, True),
        (b"", CHANGED_S + 9, False),
        (TAG, CHANGED_S + 9, True),
        (b'W/"abc"', CHANGED_S + 9, False),
        (b'"x"', CHANGED_S + 9, False),
        (THEN, CHANGED_S + 9, True),
        (THEN, CHANGED_S + 1, False),  # it may have changed twice within that second
        (AFTER, CHANGED_S + 9, False),
        (BEFORE, CHANGED_S + 9, False),
        (b"nonsense", CHANGED_S + 9, False),
    ],
)
def test_a_range_of_another_state_is_not_sent(if_range, now_s, counts):
    """RFC 9110 section 13.1.5: a part of a new file must never complete a part of an old one."""
    fields = {"range": b"bytes=0-1"} | ({} if if_range is None else {"if_range": if_range})
    assert range_counts(wish(**fields), TAG, CHANGED_S, now_s) is counts


def test_several_lines_are_one_list():
    """RFC 9110 section 5.3: tags may come in lines of their own."""
    head = Head(b"GET", b"/", FieldBlock(1, ((b"if-none-match", b'"x"'), (b"if-none-match", TAG))))
    assert judge(Wish(head), TAG, CHANGED_S) is UNCHANGED


def test_a_head_is_read_once():
    """What a head asks is kept on it; what another handler left there is not taken for it."""
    head = Head(b"GET", b"/", FieldBlock(1, ()))
    head.reading = "something of another handler's"
    first = wish_of(head)
    assert first.plain
    assert wish_of(head) is first


@pytest.mark.parametrize(
    ("accept", "page"),
    [
        (None, True),
        (b"text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", True),
        (b"*/*", True),
        (b"text/*", True),
        (b"application/json", False),
        (b"image/avif,image/webp", False),
        (b"text/html;q=0", False),
    ],
)
def test_who_takes_a_page(accept, page):
    """A program that asks for JSON or a picture gets no page in its place."""
    assert wish(**({} if accept is None else {"accept": accept})).page is page


def test_weights():
    """RFC 9110 section 12.4.2."""
    assert weights(b"gzip;q=0.5, br ; Q=1.0,*;q=0, zstd;q=2") == {
        b"gzip": 0.5,
        b"br": 1.0,
        b"*": 0.0,
        b"zstd": 0.0,
    }
    assert wish(accept_encoding=b"x-gzip").codings[b"gzip"] == 1.0
