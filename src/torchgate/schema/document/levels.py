"""What each listener, host and route says by itself, its policies included: the input of the merge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from torchgate.errors import ConfigError
from torchgate.schema.document.checks import Checks
from torchgate.schema.document.environment import Filled, braced
from torchgate.schema.document.files import Files
from torchgate.schema.document.inherit import NOTHING, Edit, Said
from torchgate.schema.document.layers import Edits, Headers, Layer, Level, Policy
from torchgate.schema.document.mistakes import Path, dotted
from torchgate.schema.document.reading import Reading
from torchgate.schema.document.secrets import Secret, SecretFile, is_secret
from torchgate.schema.routes import ErrorPage, HeaderEdit

_VERBS = ("remove", "replace", "set", "add")
_SAYING = frozenset({"headers", "pages", "log", "policies"})


class Levels:
    """Turns tables into what they say.

    Args:
        reading: The objects.
        files: Looks at files.
        checks: Judges header edits.
        origins: Whether edits carry the line they were written in.
    """

    def __init__(self, reading: Reading, files: Files, checks: Checks, *, origins: bool) -> None:
        self._reading = reading
        self._files = files
        self._checks = checks
        self._origins = origins
        self._policies: dict[str, Said] = {}
        for name, policy in reading.objects("policies").items():
            self._policies[name] = self._own(policy, ("policies", name))

    def said(self, level: Level, path: Path) -> Said:
        """Return what a level says; `NOTHING` when it says nothing, so that callers may compare."""
        if _SAYING.isdisjoint(level.model_fields_set):
            return NOTHING
        parts = [*self._used(level.policies, path), self._own(level, path)]
        logs = [part.log for part in parts if part.log is not None]
        return Said(
            request=tuple(edit for part in parts for edit in part.request),
            response=tuple(edit for part in parts for edit in part.response),
            pages=tuple(page for part in reversed(parts) for page in part.pages),
            log=logs[-1] if logs else None,
        )

    def _used(self, names: Sequence[str], path: Path) -> Iterator[Said]:
        known = self._reading.names["policies"]
        for index, name in enumerate(names):
            if name in self._policies:
                yield self._policies[name]
            elif name not in known:
                where = (*path, "policies", index)
                self._reading.wrong(
                    where,
                    f"no policy is named {name!r}",
                    self._reading.hint(name, known, "policies"),
                )

    def _own(self, layer: Layer | Policy, path: Path) -> Said:
        headers = layer.headers or Headers.model_validate({})
        pages = tuple(
            self._page(page.made(ErrorPage), (*path, "pages", index))
            for index, page in enumerate(layer.pages or ())
        )
        return Said(
            request=tuple(self._edits(headers.request, (*path, "headers", "request"))),
            response=tuple(self._edits(headers.response, (*path, "headers", "response"))),
            pages=pages,
            log=layer.log,
        )

    def _edits(self, edits: Edits | None, path: Path) -> Iterator[Edit]:
        if edits is None:
            return
        seen: dict[str, tuple[str, str]] = {}
        for verb, name, value, where in _written(edits, path):
            other, spelt = seen.setdefault(name.lower(), (verb, name))
            if other == verb and spelt != name and verb != "add":
                self._reading.wrong(
                    where, f"{name} is the same field as {spelt}", "case makes no difference"
                )
            if {other, verb} in ({"set", "replace"}, {"set", "remove"}, {"replace", "remove"}):
                self._reading.wrong(
                    where,
                    f"{name} is in {other} and in {verb}",
                    "one of them is enough; replace also drops what levels above say",
                )
            edit = self._edit(verb, name, value, where)
            try:
                self._checks.edit(edit)
            except ConfigError as error:
                self._reading.wrong(where, _silent(error.what, edit), error.hint)
            else:
                yield Edit(verb, edit)

    def _edit(self, verb: str, name: str, value: Secret, where: Path) -> HeaderEdit:
        origin = ""
        if self._origins:
            origin = f"{self._reading.sources.origin(where)} ({dotted(where[:2])})"
        return HeaderEdit(
            kind="set" if verb == "replace" else verb,  # type: ignore[arg-type]
            name=name.lower(),
            value=self._text(value, where),
            origin=origin,
            secret=is_secret(value),
        )

    def _text(self, value: Secret, where: Path) -> str:
        """Return a value in which only what stands in the configuration itself can name placeholders."""
        if isinstance(value, Filled):
            return value.literal
        found = self._files.secret(value, where)
        return braced(found) if isinstance(value, SecretFile) else found

    def _page(self, page: ErrorPage, path: Path) -> ErrorPage:
        asked = page.file or page.redirect or page.status
        if not asked and self._reading.is_sure(path, "file", "redirect", "status"):
            self._reading.wrong(path, "an error page needs a file, a redirect or a status")
        file = self._files.readable(page.file, (*path, "file"))
        page = msgspec.structs.replace(page, file=file)
        try:
            self._checks.page(page)
        except ConfigError as error:
            key = "redirect" if page.redirect else "file"
            self._reading.wrong((*path, key), error.what, error.hint)
        return page


def _written(edits: Edits, path: Path) -> Iterator[tuple[str, str, Secret, Path]]:
    for verb in _VERBS:
        if verb == "remove":
            for index, name in enumerate(edits.remove):
                yield verb, name, "", (*path, verb, index)
            continue
        for name, found in getattr(edits, verb).items():
            for value in found:
                yield verb, name, value, (*path, verb, name)


def _silent(what: str, edit: HeaderEdit) -> str:
    """Return a message without the value, when that is secret."""
    if not edit.secret:
        return what
    return f"the value of {edit.name} can't be a field value (not shown: it is secret)"
