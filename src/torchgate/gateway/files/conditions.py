"""Whether the conditions of a request hold, in the order of RFC 9110 section 13.2.2. Decisions only.

Every condition is about the representation that would be sent: the file in the coding chosen for this client.
"""

from __future__ import annotations

import enum

from torchgate.gateway.files.wish import ANY, Wish, read_date


class Verdict(enum.Enum):
    """What becomes of a GET or HEAD with conditions."""

    SEND = "send"
    UNCHANGED = "unchanged"  # 304
    FAILED = "failed"  # 412


def judge(wish: Wish, tag: bytes, modified_s: int) -> Verdict:
    """Judge the conditions of a GET or HEAD.

    Args:
        wish: What is asked.
        tag: The representation's strong entity tag.
        modified_s: When it was changed last, whole seconds since 1970.
    """
    if wish.if_match is not None:
        if ANY not in wish.if_match and tag not in wish.if_match:  # strong: W/"x" is not "x"
            return Verdict.FAILED
    elif wish.unmodified_since is not None and modified_s > wish.unmodified_since:
        return Verdict.FAILED
    if wish.if_none_match is not None:
        known = wish.if_none_match
        if ANY in known or tag in known or b"W/" + tag in known:
            return Verdict.UNCHANGED
    elif wish.modified_since is not None and modified_s <= wish.modified_since:
        return Verdict.UNCHANGED
    return Verdict.SEND


def range_counts(wish: Wish, tag: bytes, modified_s: int, now_s: float) -> bool:
    """Whether a ``Range`` is to be looked at: its ``If-Range``, if any, names what would be sent (section 13.1.5).

    A date is only as good as its seconds: it counts when the file has not changed in the second before now, so that no
    second change within that second can be missed (section 8.8.2.2).
    """
    if not wish.range:
        return False
    if wish.if_range is None:
        return True
    if wish.if_range.startswith((b'"', b"W/")):
        return wish.if_range == tag
    return read_date(wish.if_range) == modified_s and now_s - modified_s >= 2.0
