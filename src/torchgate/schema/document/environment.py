"""Values from environment variables: ``${NAME}``, ``${NAME:-default}``; ``$${`` stands for ``${``.

Only values are filled, never names of tables and keys, and what a variable holds is never read as TOML: it can't become
a key or a table. A value that is wholly one variable takes the type of its field (`torchgate.schema.document.values`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torchgate.schema.document.mistakes import Path
from torchgate.schema.target import nearest

_REFERENCE = re.compile(r"\$\$\{|\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\})?")


class Filled(str):
    """A text that came from variables.

    Attributes:
        variables: Their names.
        whole: Whether the value was one variable and nothing else, and so may be of another type than text.
        literal: The text with the braces in what variables held doubled: those are no placeholders.
    """

    __slots__ = ("literal", "variables", "whole")
    literal: str
    variables: tuple[str, ...]
    whole: bool


class Environment:
    """Fills a tree from variables.

    Args:
        variables: The environment.

    Attributes:
        wrong: What could not be filled: way to the value, what is wrong, how to mend it.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self.wrong: list[tuple[Path, str, str]] = []

    def fill(self, value: Any, path: Path = ()) -> Any:
        """Return a copy of ``value`` with every text filled."""
        if isinstance(value, str):
            return self._text(value, path) if "${" in value else value
        if isinstance(value, dict):
            return {key: self.fill(one, (*path, key)) for key, one in value.items()}
        if isinstance(value, list):
            return [self.fill(one, (*path, place)) for place, one in enumerate(value)]
        return value

    def _text(self, text: str, path: Path) -> str:
        names: list[str] = []
        doubled: list[str] = []

        def replace(match: re.Match[str]) -> str:
            found = held(match)
            doubled.append(braced(found) if match[1] is not None else found)
            return found

        def held(match: re.Match[str]) -> str:
            name, has_default, default = match.groups()
            if name is None:
                if match[0] == "${":
                    hint = "write ${NAME} or ${NAME:-default}, and $${ for the two characters themselves"
                    self.wrong.append(
                        (path, f"a variable is not closed or not named: {text[:60]!r}", hint)
                    )
                return "${"
            names.append(name)
            found = self._variables.get(name, "")
            if not found and has_default:
                return str(default)
            if not found and name not in self._variables:
                near = nearest(name, self._variables)
                hint = f"set it, or give a default: ${{{name}:-...}}"
                hint += f"; did you mean {near}?" if near else ""
                self.wrong.append((path, f"the environment has no variable {name}", hint))
            return found

        made = _REFERENCE.sub(replace, text)
        if not names:  # `$${` only, or a mistake
            return made
        filled = Filled(made)
        parts = iter(doubled)
        filled.literal = _REFERENCE.sub(lambda _: next(parts), text)
        filled.variables = tuple(names)
        match = _REFERENCE.fullmatch(text)
        filled.whole = match is not None and match[1] is not None
        return filled


def braced(text: str) -> str:
    """Return a text for a place where braces name placeholders, and these do not."""
    return text.replace("{", "{{").replace("}", "}}")
