"""Texts that may come from a file of their own, and are shown to nobody."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from torchgate.schema.document import values
from torchgate.schema.document.environment import Filled
from torchgate.schema.document.wrongs import alternative, wrong


class SecretFile(msgspec.Struct, frozen=True):
    """A text that stands in a file; one newline at its end is no part of it."""

    file: str


Secret = str | SecretFile
"""What a key for secret texts holds after validation."""

MAX_SECRET = 64 * 1024
"""Largest secret file, bytes: a header field has to hold what is in it."""


def secret(value: object) -> Secret:
    """Return a text, which keeps whether it came from a variable, or where it is to be read."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        _, file = alternative(value, ("file",), values.full_text, '{ file = "/run/secrets/x" }')
        return SecretFile(file)
    raise wrong(f'got {values.shown(value)}, expected text or {{ file = "PATH" }}')


SCHEMA: dict[str, Any] = {
    "anyOf": [
        values.STRING,
        {
            "type": "object",
            "properties": {"file": values.STRING},
            "required": ["file"],
            "additionalProperties": False,
        },
    ]
}

SecretText = Annotated[Secret, values.Parsed(secret, SCHEMA)]


def is_secret(value: Secret) -> bool:
    """Whether a text must not be shown: it came from a file or a variable."""
    return isinstance(value, Filled | SecretFile)
