"""``torchgate schema``."""

from __future__ import annotations

import sys


def schema() -> None:
    """Print the JSON Schema of the configuration file, for editors and other tools."""
    from torchgate.schema.document.published import schema_text

    sys.stdout.write(schema_text())
