"""A head finds its route once."""

import pytest

from torchgate.errors import Cause, RequestError
from torchgate.gateway.router import Route, Router
from torchgate.schema.config import Limits
from torchgate.wire.head import Head, parse_head


def nothing(exchange):
    raise AssertionError("not called here")


def head(target: bytes, method: bytes = b"GET") -> Head:
    return parse_head(method + b" " + target + b" HTTP/1.1\r\nhost: h\r\n\r\n", Limits())


def test_exact_routes_win_over_prefixes():
    model = Route("/models/a b", {b"GET": nothing}, model="a b")
    rest = Route("/models/", {b"GET": nothing})
    router = Router([model], [rest])
    for target in (b"/models/a%20b", b"/models/%61%20b", b"/models/./a%20b?x=1"):
        asked = head(target)
        assert router.resolve(asked) is model
        assert asked.normal == "/models/a b"
    assert router.resolve(head(b"/models/x")) is rest
    with pytest.raises(RequestError) as caught:
        router.resolve(head(b"/model"))
    assert caught.value.cause is Cause.NOT_FOUND


def test_what_was_found_is_kept_on_the_head_until_the_router_is_another():
    first, second = Route("/a", {b"GET": nothing}), Route("/a", {b"GET": nothing})
    asked = head(b"/a")
    router = Router([first])
    assert router.resolve(asked) is first
    asked.path = b"/other"  # not looked at again
    assert router.resolve(asked) is first
    asked.path = b"/a"
    assert Router([second]).resolve(asked) is second


def test_the_asterisk_form_and_bad_paths():
    router = Router([Route("/a", {b"GET": nothing})])
    asked = head(b"*", b"OPTIONS")
    assert router.resolve(asked) is router.default
    assert asked.normal == "*"
    with pytest.raises(RequestError) as caught:
        router.resolve(head(b"/a%2fb"))
    assert caught.value.cause is Cause.BAD_REQUEST


def test_head_follows_get_and_allow_names_all():
    route = Route("/", {b"GET": nothing, b"POST": nothing})
    assert route.handlers[b"HEAD"] is nothing
    assert route.allow == b"GET, HEAD, POST, OPTIONS"


def test_an_extended_router_leaves_the_old_one_alone():
    old = Router([Route("/a", {b"GET": nothing})])
    page = Route("/b", {b"GET": nothing})
    new = old.extended([page])
    assert new.find("/b") is page
    assert new.find("/a") is old.find("/a")
    assert old.find("/b") is None


class Level:
    """Stands in for the routes of a listener that has none, but says something about every answer."""

    builtin = True
    empty = True

    def __init__(self):
        self.level = Route("*", {})
        self.level.log_share = 0.5

    def find(self, head):
        raise AssertionError("there is nothing to find")

    def unrouted(self, head):
        return self.level


def test_without_routes_the_built_in_paths_are_found_as_ever_and_carry_what_the_listener_says():
    router = Router([Route("/a", {b"GET": nothing})], [Route("/b/", {b"GET": nothing})], Level())
    for target in (b"/a", b"/%61", b"/b/c"):
        assert router.resolve(head(target)).log_share == 0.5
    asked = head(b"/c")
    with pytest.raises(RequestError):
        router.resolve(asked)
    assert router.fallback(asked).log_share == 0.5
