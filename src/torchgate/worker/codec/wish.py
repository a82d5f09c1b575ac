"""One output that an Open Inference Protocol client asked for."""

from __future__ import annotations

import msgspec


class OutputWish(msgspec.Struct, frozen=True, gc=False):
    """One output an Open Inference Protocol client asked for.

    Attributes:
        name: Its name.
        binary: Whether its data goes after the JSON, as bytes.
    """

    name: str
    binary: bool
