"""An explanation as text: short lines, the place a value comes from at their end; colour only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from torchgate.routing.explain import Explanation
from torchgate.routing.explain_fields import Line
from torchgate.routing.explain_settings import Setting

_LABEL = 13
_STYLES = {"route": "bold green", "builtin": "bold green"}
_SIGNS = {"keep": " ", "own": " ", "set": "=", "add": "+", "remove": "-"}


class Printer:
    """Writes explanations to standard output.

    Args:
        files: The configuration, for the hints.
    """

    def __init__(self, files: Sequence[str]) -> None:
        self._files = files
        terminal = sys.stdout.isatty()
        self._console = Console(
            highlight=False,
            emoji=False,  # :b: is part of an address
            soft_wrap=True,
            no_color=None if terminal else True,
            force_terminal=terminal,
        )

    def show(self, found: Explanation) -> None:
        """Write one explanation."""
        style = _STYLES.get(found.outcome, "bold yellow")
        self._console.print(f"[bold]{escape(found.request)}[/]")
        self._console.print(f"[{style}]{escape(found.text)}[/]")
        self._console.print()
        self._places(found)
        self._route(found)
        self._others(found)
        self._pool(found)
        self._settings("policies", found.policies)
        self._settings("limits", found.limits)
        self._lines("request", "to the pool", found.request_fields)
        self._lines("response", "to the client, beside those of the body", found.response_fields)
        for page in found.pages:
            self._row("error page", page)
        if found.log < 1:
            self._row("access log", f"{found.log:.0%} of the successful requests, every error")
        for note in found.notes:
            self._row("note", note)
        if found.outcome in ("not-found", "method-not-allowed"):
            self._mend(found)

    def _places(self, found: Explanation) -> None:
        if found.listener is not None:
            at = found.listener
            self._row("listener", f"{at.name} ({at.address}): {at.why}", at.origin)
        if found.certificate is not None:
            shown = found.certificate
            valid = "valid for it" if shown.covers else "NOT valid for it, no other is either"
            text = f"{shown.name} for {', '.join(shown.hosts[:5])}: {valid}; {shown.days_left} days left"
            self._row("certificate", text, shown.origin)
        if found.host is not None:
            wants = [
                word
                for word, wanted in (
                    ("a client certificate", found.host.client_certificate),
                    ("https", found.host.redirect_https),
                )
                if wanted
            ]
            text = f"{found.host.name} demands {' and '.join(wants) or 'nothing'}"
            self._row("host", text, found.host.origin)
        if found.path:
            self._row("path", found.path)

    def _route(self, found: Explanation) -> None:
        route = found.route
        if route is None:
            return
        self._row("route", route.name, route.origin)
        for condition in route.met or ("it takes every request",):
            self._row("", f"matches: {condition}")
        self._row("action", route.action)
        for one in route.settings:
            self._row("", f"{one.name} = {one.value}", one.origin)
        if found.target:
            self._row("target", found.target)
        if found.location:
            self._row("location", found.location)

    def _others(self, found: Explanation) -> None:
        if not found.others:
            return
        self._console.print()
        self._console.print("[bold]the nearest other routes[/]")
        for other in found.others:
            sign = "~" if other.matches else "x"
            self._row(f"{sign} {other.route}", other.reason, other.origin)

    def _pool(self, found: Explanation) -> None:
        pool = found.pool
        if pool is None:
            return
        self._console.print()
        self._console.print(f"[bold]pool {escape(pool.name)}[/] [dim]{escape(pool.origin)}[/]")
        for index, endpoint in enumerate(pool.endpoints):
            self._row("" if index else "endpoints", endpoint)
        self._row("balance", pool.balance.value, pool.balance.origin)
        for one in pool.settings:
            self._row("", f"{one.name} = {one.value}", one.origin)
        self._settings("pool limits", pool.limits)
        self._settings("pool timeouts", pool.timeouts)

    def _settings(self, title: str, found: Sequence[Setting]) -> None:
        if not found:
            return
        self._console.print()
        self._console.print(f"[bold]{title}[/]")
        for one in found:
            self._row("", f"{one.name} = {one.value}", one.origin)

    def _lines(self, title: str, about: str, found: Sequence[Line]) -> None:
        if not found:
            return
        self._console.print()
        self._console.print(f"[bold]{title} fields[/] [dim]{about}[/]")
        for line in found:
            text = f"{_SIGNS[line.kind]} {line.name}" + (f": {line.value}" if line.value else "")
            self._row("", text, line.origin)

    def _mend(self, found: Explanation) -> None:
        self._console.print()
        if not found.others:
            text = (
                f"{self._files[0]} has no routes; add one: [routes.NAME] with a path and an action"
            )
        elif found.outcome == "method-not-allowed":
            text = "add the method to the route above, or write another route for it"
        else:
            near = found.others[0]
            text = f"the nearest route is {near.route}: {near.reason}"
        self._console.print(f"[bold]hint:[/] {escape(text)}")

    def _row(self, label: str, text: str, origin: str = "") -> None:
        """Write label, text and place; a label that is longer than its column keeps a space behind it."""
        line = f"  [dim]{escape(f'{label:<{_LABEL}}')}[/]{'' if len(label) < _LABEL else ' '}{escape(text)}"
        if origin:
            line += f"  [dim]({escape(origin)})[/]"
        self._console.print(line)
