"""The reference says what the code does."""

from pathlib import Path

from torchgate.routing.edits import FRAMING
from torchgate.routing.template import PLACEHOLDERS

TEXT = (Path(__file__).parents[3] / "docs/reference/routing.md").read_text()


def test_every_placeholder_is_in_the_reference_with_its_meaning():
    for name, meaning in PLACEHOLDERS.items():
        assert f"| `{{{name}}}` | {meaning} |" in TEXT
    assert TEXT.count("\n| `{") == len(PLACEHOLDERS)


def test_the_fields_that_can_not_be_edited_are_in_the_reference():
    for name in FRAMING:
        assert f"`{name}`" in TEXT
