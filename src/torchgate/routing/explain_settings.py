"""Parts of an explanation: actions, pools, limits and timeouts, each value with the place it was written at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from torchgate.schema.config import KIB, MIB, Limits, ListenerConfig
from torchgate.schema.front import FrontConfig
from torchgate.schema.pools import PoolConfig
from torchgate.schema.routes import RouteConfig

Path = tuple[str | int, ...]

OF_CONNECTION = frozenset(
    (
        "request_line_bytes",
        "header_count",
        "header_bytes",
        "connections",
        "connections_per_client",
        "pipelined",
        "header_timeout_s",
        "idle_timeout_s",
        "memory_budget_bytes",
    )
)
"""Limits that apply before a route is known, so that they are always the listener's."""


class Origins(Protocol):
    """Knows how values are called and where they were written: the configuration file, for ``torchgate explain``."""

    def key(self, field: str) -> str:
        """Return the key of a struct's field."""
        ...

    def origin(self, path: Path) -> str:
        """Return ``FILE:LINE`` of a value, or empty when it was not written, so that the default applies."""
        ...

    def text(self, path: Path) -> str:
        """Return the text written at a path, or empty when there is none."""
        ...

    def names(self, path: Path) -> tuple[str, ...]:
        """Return the names written at a path, one or a list of them."""
        ...


def used_policies(levels: Iterable[Path], origins: Origins) -> Iterator[Setting]:
    """Yield the policies that levels name, each as the level, their names, and where they were written."""
    for path in levels:
        where = (*path, "policies")
        names = origins.names(where)
        if names:
            name = ".".join(map(str, path))
            yield Setting(name=name, value=", ".join(names), origin=origins.origin(where))


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One value that applies.

    Attributes:
        name: Its key in the configuration file.
        value: As one would write it there.
        origin: ``FILE:LINE``, or ``default``.
    """

    name: str
    value: str
    origin: str = "default"


class PoolFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The pool of a proxy route.

    Attributes:
        name, origin: Which, and where it was written.
        endpoints: What it is made of.
        balance: How one is chosen.
        settings: Everything else but limits and timeouts; names as they stand below the pool.
        limits, timeouts: Bounds and timeouts.
    """

    name: str
    origin: str
    endpoints: tuple[str, ...]
    balance: Setting
    settings: tuple[Setting, ...]
    limits: tuple[Setting, ...]
    timeouts: tuple[Setting, ...]


def shown(field: str, value: object) -> str:
    """Return a value as one would write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(shown(field, one) for one in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{name}: {one}" for name, one in value.items()) or "none"
    if field.endswith(("_bytes", "_bytes_s")) and isinstance(value, int):
        per_second = "/s" if field.endswith("_bytes_s") else ""
        for unit, size in (("GiB", 1024 * MIB), ("MiB", MIB), ("KiB", KIB)):
            if value and value % size == 0:
                return f"{value // size} {unit}{per_second}"
        return f"{value} B{per_second}"
    if field.endswith("_s") and isinstance(value, float | int):
        return f"{value:g} s"
    return str(value) if value != "" else "none"


def settings(
    struct: msgspec.Struct, path: Path, origins: Origins, *, leave: Sequence[str] = ()
) -> Iterator[Setting]:
    """Yield the fields of a struct as settings; nested structs are left out.

    Args:
        struct: The values.
        path: Way to its table in the document.
        origins: Where values were written.
        leave: Fields that are left out.
    """
    for field in struct.__struct_fields__:
        value = getattr(struct, field)
        if field in leave or isinstance(value, msgspec.Struct) or value is None:
            continue
        key = origins.key(field)
        yield Setting(
            name=key,
            value=shown(field, value),
            origin=origins.origin((*path, key)) or "default",
        )


def action_settings(route: RouteConfig, origins: Origins) -> tuple[Setting, ...]:
    """Return what the route's action says."""
    kind = type(route.action).__struct_config__.tag
    return tuple(settings(route.action, ("routes", route.name, str(kind)), origins))


def limit_settings(
    front: FrontConfig, listener: ListenerConfig, route: RouteConfig | None, origins: Origins
) -> tuple[Setting, ...]:
    """Return every limit and timeout between the client and us, with its value for this route."""
    found = []
    named = "" if route is None else route.limits
    for field in Limits.__struct_fields__:
        key = origins.key(field)
        if named and field not in OF_CONNECTION:
            limits = front.limits[named]
            of_route = route is not None and named == f"routes.{route.name}"
            path: Path = (
                ("routes", route.name, "limits") if of_route and route else ("limits", named)
            )
        else:
            limits = listener.limits
            shared = origins.text(("listeners", listener.name, "limits"))
            path = ("limits", shared) if shared else ("listeners", listener.name, "limits")
        found.append(
            Setting(
                name=key,
                value=shown(field, getattr(limits, field)),
                origin=origins.origin((*path, key)) or "default",
            )
        )
    return tuple(found)


def pool_facts(pool: PoolConfig, origins: Origins) -> PoolFacts:
    """Return what is known of a pool before anything runs."""
    path: Path = ("pools", pool.name)
    more: list[Setting] = []
    for part in ("health", "outlier", "retry", "tls"):
        struct = getattr(pool, part)
        if struct is not None:
            more += [
                msgspec.structs.replace(one, name=f"{part}.{one.name}")
                for one in settings(struct, (*path, part), origins)
            ]
    leave = ("name", "endpoints", "balance", "sticky_secret")
    return PoolFacts(
        name=pool.name,
        origin=origins.origin(path),
        endpoints=tuple(_endpoint(one) for one in pool.endpoints),
        balance=Setting(
            name="balance",
            value=pool.balance,
            origin=origins.origin((*path, "balance")) or "default",
        ),
        settings=(*settings(pool, path, origins, leave=leave), *more),
        limits=tuple(settings(pool.limits, (*path, "limits"), origins)),
        timeouts=tuple(settings(pool.timeouts, (*path, "timeouts"), origins)),
    )


def _endpoint(endpoint: msgspec.Struct) -> str:
    said = [str(getattr(endpoint, "address", ""))]
    if getattr(endpoint, "kind", "") == "srv":
        said[0] = f"srv:{said[0]}"
    if getattr(endpoint, "weight", 1) != 1:
        said.append(f"weight {getattr(endpoint, 'weight', 1)}")
    said += [word for word in ("backup", "drain") if getattr(endpoint, word, False)]
    return ", ".join(said)
