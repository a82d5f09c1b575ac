"""Header edits: what they come down to, what they can't break."""

import pytest

from torchgate.errors import ConfigError
from torchgate.routing.edits import Editor, check
from torchgate.routing.template import PLACEHOLDERS, Template
from torchgate.schema.routes import HeaderEdit, HeaderEdits


class Values:
    def __init__(self, **values):
        self.values = values

    def placeholder(self, name):
        return self.values[name]


def editor(*edits):
    made = tuple(HeaderEdit(kind=k, name=n, value=v) for k, n, v in edits)
    return Editor(HeaderEdits(response=made)).response


def test_set_replaces_all_lines_add_adds_one_remove_leaves_none():
    fields = [(b"x-a", b"1"), (b"x-b", b"2"), (b"x-a", b"3")]
    assert editor(("set", "x-a", "4")).apply(fields, None) == ((b"x-b", b"2"), (b"x-a", b"4"))
    assert editor(("add", "x-a", "4")).apply(fields, None) == (*fields, (b"x-a", b"4"))
    assert editor(("remove", "x-a", "")).apply(fields, None) == ((b"x-b", b"2"),)
    both = editor(("set", "x-a", "4"), ("add", "x-a", "5"), ("remove", "x-b", ""))
    assert both.apply(fields, None) == ((b"x-a", b"4"), (b"x-a", b"5"))
    assert both.lines(None) == b"x-a: 4\r\nx-a: 5\r\n"


def test_nothing_to_do_is_none():
    assert Editor(HeaderEdits()).request is None
    assert Editor(HeaderEdits()).response is None


def test_constant_edits_are_known_to_be():
    assert editor(("set", "x-a", "{{1}}")).constant
    assert editor(("set", "x-a", "{{1}}")).lines(None) == b"x-a: {1}\r\n"
    by_head = editor(("set", "x-a", "{host}{path}"))
    assert (by_head.constant, by_head.of_head) == (False, True)
    assert not editor(("set", "x-a", "{client_ip}")).of_head


@pytest.mark.pain("N17")
def test_a_value_can_not_leave_its_line():
    source = Values(path=b"/a\r\nx-evil: 1\0", host=b"h")
    assert editor(("set", "x-a", "{path}@{host}")).lines(source) == b"x-a: /ax-evil: 1@h\r\n"


@pytest.mark.parametrize(
    "name",
    ["content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "host",
     "proxy-connection", "cdn-loop", "", "x a", "x:a", "X-A", "x-ä", "x\r\n"],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["set", "add", "remove"])
def test_names_that_break_framing_or_are_none_are_refused(kind, name):
    with pytest.raises(ConfigError):
        check(HeaderEdit(kind=kind, name=name, value="1"))


@pytest.mark.parametrize(
    "value", ["a\r\nb", "a\nb", "\0", "{nope}", "{", "}", "a{b", "{path", "\x7f"]
)
def test_values_that_are_none_are_refused(value):
    with pytest.raises(ConfigError) as caught:
        check(HeaderEdit(kind="set", name="x-a", value=value))
    assert caught.value.hint


def test_the_nearest_placeholder_is_named():
    with pytest.raises(ConfigError) as caught:
        Template("{clientip}")
    assert caught.value.hint.startswith("Did you mean {client_ip}?")


def test_every_placeholder_can_be_written():
    text = "".join(f"<{{{name}}}>" for name in PLACEHOLDERS)
    template = Template(text)
    assert template.names == tuple(PLACEHOLDERS)
    values = Values(**{name: name.upper().encode() for name in PLACEHOLDERS})
    assert template.fill(values) == "".join(f"<{name.upper()}>" for name in PLACEHOLDERS).encode()
    assert Template("ä").constant == "ä".encode()
