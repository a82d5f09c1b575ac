"""Events as text for people, on standard error: colour and a spinner on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys

from torchgate.errors import ConfigError
from torchgate.supervisor import events


def show_error(error: ConfigError) -> None:
    """Print one readable message: what is wrong, the detail, how to mend it."""
    print(_message(error.what, error.hint, getattr(error, "detail", "")), file=sys.stderr)


def _message(what: str, hint: str, detail: str) -> str:
    lines = [f"error: {what}"]
    lines.extend(f"  {line}" for line in detail.splitlines())
    if hint:
        lines.append(f"hint: {hint}")
    return "\n".join(lines)


class TextConsole:
    """Shows events as text."""

    def show(self, event: events.Event) -> None:
        """Show one event."""
        print(event, file=sys.stderr, flush=True)
