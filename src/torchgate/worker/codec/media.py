"""Media types of requests and answers: what was sent, what is accepted (RFC 9110 sections 8.3 and 12.5.1)."""

from __future__ import annotations

JSON = "application/json"
NPY = "application/x-npy"
OCTETS = "application/octet-stream"
FORM = "application/x-www-form-urlencoded"  # what ``curl -d`` says when told nothing


def essence(content_type: str) -> str:
    """Return a media type in lower case without its parameters; empty when there is none."""
    return content_type.partition(";")[0].strip().lower()


def is_json(kind: str) -> bool:
    """Return whether a media type (without parameters) holds JSON (RFC 6839 section 3.1 for ``+json``)."""
    return kind in {JSON, "text/json"} or (
        kind.startswith("application/") and kind.endswith("+json")
    )


def matches(kind: str, pattern: str) -> bool:
    """Return whether a media type falls under ``type/subtype``, ``type/*`` or ``*/*``."""
    if pattern in {"*/*", kind}:
        return True
    return pattern.endswith("/*") and kind.startswith(pattern[:-1])


def accepted(accept: str) -> list[tuple[str, float]]:
    """Return the ranges of an ``Accept`` field with their weights; unreadable weights count as 1."""
    ranges: list[tuple[str, float]] = []
    for part in accept.split(","):
        kind, *parameters = [piece.strip() for piece in part.split(";")]
        if not kind:
            continue
        weight = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "q":
                try:
                    weight = float(value)
                except ValueError:
                    weight = 1.0
        ranges.append((kind.lower(), weight))
    return ranges


def choose(accept: str, offers: tuple[str, ...]) -> str:
    """Return the offer an ``Accept`` field likes best, the first of equals; empty when none will do.

    An absent field takes the first offer.
    """
    ranges = accepted(accept)
    if not ranges:
        return offers[0]
    best, best_weight = "", 0.0
    for offer in offers:
        weight = _weight(offer, ranges)
        if weight > best_weight:
            best, best_weight = offer, weight
    return best


def _weight(kind: str, ranges: list[tuple[str, float]]) -> float:
    """The weight of the most specific range that covers ``kind``."""
    weight, specific = 0.0, -1
    for pattern, value in ranges:
        if not matches(kind, pattern):
            continue
        rank = 0 if pattern == "*/*" else 1 if pattern.endswith("/*") else 2
        if rank > specific:
            weight, specific = value, rank
    return weight


def charset(content_type: str) -> str:
    """Return the ``charset`` parameter of a media type in lower case, or an empty string."""
    for parameter in content_type.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip('"').lower()
    return ""
