"""What ``torchgate explain`` says: the configuration read with its places, and the explanation as text or JSON."""

from __future__ import annotations

import ipaddress
import sys
import time
from collections.abc import Sequence

import msgspec

from torchgate.cli.checks import RoomChecks
from torchgate.cli.explained_text import Printer
from torchgate.cli.text import show_error
from torchgate.errors import ConfigError
from torchgate.routing.explain import explain
from torchgate.routing.explain_question import Builtin, Question
from torchgate.schema.config import ListenerConfig, ModelConfig
from torchgate.schema.document.loading import load
from torchgate.schema.document.sources import Sources
from torchgate.schema.document.tables import key_of

ANSWERED = frozenset(("route", "builtin", "options", "redirect-https"))
"""Outcomes for which the exit code is 0."""

SHORT = frozenset(
    ("attempts", "body", "certificates", "enabled", "kind", "model", "pool", "root", "to")
)
"""Keys whose value may be written in place of their whole table."""

Path = tuple[str | int, ...]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was typed."""

    url: str
    method: str
    headers: tuple[str, ...]
    listener: str
    client: str


class FileOrigins:
    """Places in configuration files; see `torchgate.routing.explain_settings.Origins`.

    Args:
        files: The file and its overlays.
    """

    def __init__(self, files: Sequence[str]) -> None:
        self._sources = Sources(files)

    def key(self, field: str) -> str:
        """Return the key of a struct's field."""
        return key_of(field)

    def origin(self, path: Path) -> str:
        """Return ``FILE:LINE`` of a value, or of the short form it was written in; empty when it was not written."""
        value: object = self._sources.tree
        for depth, part in enumerate(path):
            if isinstance(value, dict):
                if part not in value:
                    return ""
                value = value[part]
            else:  # a short form, such as proxy = "app": it stands for the value of one key
                return self._sources.origin(path[:depth]) if part in SHORT else ""
        return self._sources.origin(path)

    def text(self, path: Path) -> str:
        """Return the text written at a path, or empty."""
        value = self._value(path)
        return value if isinstance(value, str) else ""

    def names(self, path: Path) -> tuple[str, ...]:
        """Return the names written at a path, one or a list of them."""
        value = self._value(path)
        if isinstance(value, list):
            return tuple(str(one) for one in value)
        return (value,) if isinstance(value, str) else ()

    def _value(self, path: Path) -> object:
        value: object = self._sources.tree
        for part in path:
            if not isinstance(value, dict) or part not in value:
                return None
            value = value[part]
        return value


def report(files: Sequence[str], asked: Asked, *, as_json: bool) -> int:
    """Explain a request, say it, return the exit code."""
    try:
        question = _question(asked)
        config = load(files, RoomChecks(), origins=True).config
        found = explain(
            config,
            question,
            FileOrigins(files),
            time.time(),  # noqa: TID251 - certificates end by the calendar
            lambda path, listener: builtin(path, listener, config.models),
        )
    except ConfigError as error:
        show_error(error)
        return ConfigError.exit_code
    if as_json:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    else:
        Printer(files).show(found)
    return 0 if found.outcome in ANSWERED else 1


def _question(asked: Asked) -> Question:
    fields = []
    for line in asked.headers:
        name, colon, value = line.partition(":")
        if not colon or not name.strip() or _is_broken(line):
            raise ConfigError(f"-H {line!r} is no header field", "write -H 'x-name: value'")
        fields.append((name.strip(), value.strip()))
    for what, text in (("-X", asked.method), ("the URL", asked.url)):
        if not text or _is_broken(text):
            raise ConfigError(
                f"{what} {text!r} is empty, or holds what can't be sent",
                "Write it in UTF-8, without control characters.",
            )
    try:
        client = str(ipaddress.ip_address(asked.client))
    except ValueError:
        raise ConfigError(f"--client {asked.client!r} is no IP address") from None
    return Question(
        url=asked.url,
        method=asked.method,
        fields=tuple(fields),
        listener=asked.listener,
        client=client,
    )


_UNKNOWN = ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")
"""Methods of which a model that is not served is told as 404."""


def _is_broken(text: str) -> bool:
    """Whether a text can't be sent or shown: control characters, or bytes that are no UTF-8."""
    return any((c < " " and c != "\t") or c == "\x7f" or "\ud800" <= c <= "\udfff" for c in text)


def builtin(path: str, listener: ListenerConfig, models: Sequence[ModelConfig]) -> Builtin | None:
    """Return what answers a normalised path among the built-in ones; None for nothing."""
    if path == "/metrics" and listener.public_metrics:
        return Builtin(text="numbers about the service, for Prometheus", methods=("GET",))
    text = builtin_answer(path, models)
    if not text:
        return None
    if text.startswith("404"):
        return Builtin(text=text, methods=_UNKNOWN, there=False)
    methods: tuple[str, ...] = ("GET",)
    if path.startswith("/models/"):
        methods = ("GET", "POST")
    elif path.startswith("/v2/") and path.endswith("/infer"):
        methods = ("POST",)
    return Builtin(text=text, methods=methods)


_FIXED = {
    "/": "to the documentation page, or the demo page",
    "/healthz": "whether the gateway lives",
    "/readyz": "whether every model is ready",
    "/openapi.json": "the OpenAPI document",
    "/docs": "the documentation page",
    "/models": "the models that are served",
    "/v2": "Open Inference Protocol: the server",
    "/v2/": "Open Inference Protocol: the server",
    "/v2/health/live": "Open Inference Protocol: alive",
    "/v2/health/ready": "Open Inference Protocol: ready",
    "/v2/models": "Open Inference Protocol: the models that are served",
    "/v2/models/stats": "Open Inference Protocol: statistics",
}


def builtin_answer(path: str, models: Sequence[ModelConfig]) -> str:
    """Return what a built-in path answers, in words; empty when there is none.

    Args:
        path: Normalised.
        models: What is served.
    """
    if path in _FIXED:
        return _FIXED[path]
    for prefix in ("/models/", "/v2/models/"):
        if not path.startswith(prefix):
            continue
        name, _, rest = path.removeprefix(prefix).partition("/")
        model = next((one for one in models if one.name == name), None)
        if model is None:
            return f"404: no model {name!r} is served"
        rest = rest.removeprefix(f"versions/{model.version}").removeprefix("/")
        if prefix == "/models/" and "/" not in path.removeprefix(prefix):
            return f"the model {name}"
        if prefix == "/v2/models/" and rest in ("", "ready", "stats", "infer"):
            return f"Open Inference Protocol: the model {name}{', ' + rest if rest else ''}"
        return f"404: no such path below the model {name}"
    return ""
