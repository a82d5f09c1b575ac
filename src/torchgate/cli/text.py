"""Events as text for people, on standard error: colour and a spinner on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from torchgate.cli import summary
from torchgate.errors import ConfigError
from torchgate.schema.words import counted
from torchgate.supervisor import events

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status


def show_error(error: ConfigError) -> None:
    """Print one readable message: what is wrong, the detail, how to mend it."""
    _print_failure(_console(), error.what, error.hint, getattr(error, "detail", ""))


def _console() -> Console:
    from rich.console import Console

    # Only colour for words we choose: rich would paint numbers and paths at random.
    return Console(stderr=True, highlight=False, emoji=False, soft_wrap=not sys.stderr.isatty())


def _print_failure(console: Console, what: str, hint: str, detail: str) -> None:
    console.print("[bold red]error:[/] ", end="")
    console.print(what, markup=False)
    for line in detail.splitlines():
        console.print(f"  {line}", markup=False, style="dim")
    if hint:
        console.print("[bold]hint:[/]  ", end="")
        console.print(hint, markup=False)


_LABEL_WIDTH = 10
"""Columns of the labels at the left of most rows, the space behind them included."""


class TextConsole:
    """Shows events as text."""

    def __init__(self) -> None:
        self._rich: Console | None = None
        self._status: Status | None = None
        self._models: tuple[str, ...] = ()
        self._shown: set[str] = set()  # models whose signature has been shown
        self._phases: dict[str, str] = {}
        self._first_model: events.ReplicaUp | None = None

    @property
    def rich(self) -> Console:
        """The terminal; rich is imported when first needed, after the workers have been started."""
        if self._rich is None:
            self._rich = _console()
        return self._rich

    def show(self, event: events.Event) -> None:
        """Show one event."""
        if isinstance(event, events.Ready | events.Failed | events.Stopped | events.Draining):
            self._stop_spinner()
        self._dispatch(event)

    def _dispatch(self, event: events.Event) -> None:
        match event:
            case events.Starting():
                self._starting(event)
            case events.ReplicaStarted() | events.GatewayUp():
                pass
            case events.Loading():
                self._loading(event)
            case events.ReplicaUp():
                self._replica_up(event)
            case events.Ready():
                self._ready(event)
            case events.ReplicaLost():
                self._replica_lost(event)
            case events.ReplicaHealth():
                state = "answers again" if event.responsive else f"does not answer: {event.detail}"
                self._line("info" if event.responsive else "warning", f"{_who(event)} {state}")
            case events.GatewayLost():
                who = f"gateway {event.gateway} (pid {event.pid})"
                self._line("error", f"{who} lost: {_why(event)}; again in {event.retry_s:.2f} s")
            case events.Notice() | events.EndpointHealth() | events.EndpointEjected():
                self._line(*_noted(event))
            case events.Draining():
                what = f"{event.signal}: finishing what was accepted, at most {event.grace_s:g} s"
                self._line("info", f"{what}; a second signal ends at once")
            case events.StillOpen():
                what = f"still open: {counted(event.requests, 'request')}, {counted(event.connections, 'connection')}"
                self._line("info", f"{what}; {event.left_s:.0f} s left")
            case events.Stopped():
                self._stopped(event)
            case events.Failed():
                _print_failure(self.rich, event.what, event.hint, event.detail)
            case _:
                self._line("error", f"an event of unknown kind: {event}")

    # --- start

    def _starting(self, event: events.Starting) -> None:
        self._models = event.models
        # At the top of the file it would delay the workers by 20 ms.
        from torchgate.cli.version import described

        self.rich.print(f"[bold]torchgate[/] {described()} [dim](pid {event.pid})[/]")
        rows = [("machine", "; ".join(event.facts))]
        for decision in event.decisions:
            name, colon, text = decision.partition(": ")
            rows.append((name, text) if colon else ("", decision))
        width = max(_LABEL_WIDTH, *(len(name) + 2 for name, _ in rows))
        for name, text in rows:
            self._row(name, text, width=width)
        if self.rich.is_terminal:
            self._status = self.rich.status("importing torch", spinner="dots", refresh_per_second=6)
            self._status.start()

    def _loading(self, event: events.Loading) -> None:
        doing = summary.PHASES.get(event.phase, event.phase)
        text = f"{event.model}: {doing}" + (f" {event.detail}" if event.detail else "")
        self._phases[event.model] = text
        if self._status is not None:
            self._status.update("; ".join(_plain(one) for one in self._phases.values()))
        elif event.replica == 0 and event.model not in self._shown:
            self.rich.print(f"  {text}", markup=False, style="dim")

    def _replica_up(self, event: events.ReplicaUp) -> None:
        self._phases.pop(event.model, None)
        if not event.first:
            self._line("info", f"{_who(event)} is ready again after {event.start_s:.1f} s")
            return
        if event.model in self._shown:
            return
        self._shown.add(event.model)
        if self._first_model is None:
            self._first_model = event
        self.rich.print()
        self.rich.print(f"[bold cyan]{_plain(event.model)}[/] [dim]{event.signature.platform}[/]")
        for label, text in summary.model_rows(event):
            self._row(label, text, style="yellow" if label == "note" else "")

    def _ready(self, event: events.Ready) -> None:
        self.rich.print()
        self.rich.print(f"[bold green]Ready[/] after {event.start_s:.1f} s")
        for label, text in summary.url_rows(event, self._models):
            self._row(label, text)
        if self._first_model is not None and event.builtin:
            # Not folded to the width of the terminal: it is there to be copied.
            self.rich.print()
            command = summary.curl(event.builtin[0], self._first_model.signature)
            self.rich.print(f"  {command}", markup=False, soft_wrap=True, style="cyan")
            self.rich.print()
        self.rich.print("[dim]Ctrl-C stops it; what was accepted is finished first[/]")

    # --- running

    def _replica_lost(self, event: events.ReplicaLost) -> None:
        parts = [f"{_who(event)} (pid {event.pid}) lost: {_why(event)}"]
        if event.executing:
            parts.append(f"was running {counted(event.executing, 'request')}")
        parts.append(
            f"breaker open, slow retry in {event.retry_s:.0f} s"
            if event.failed
            else f"again in {event.retry_s:.2f} s"
        )
        self._line("error", "; ".join(parts))

    def _stopped(self, event: events.Stopped) -> None:
        for line in event.unfinished:
            self._line("warning", f"not finished: {line}")
        if event.exit_code in (0, 1, 3):
            self.rich.print(
                "[dim]stopped[/]" if not event.detail else f"[dim]stopped: {event.detail}[/]"
            )
        else:
            self._line("warning", event.detail)

    # --- pieces

    def _row(self, label: str, text: str, style: str = "", width: int = _LABEL_WIDTH) -> None:
        from rich.padding import Padding
        from rich.table import Table

        if not self.rich.is_terminal:
            self.rich.print(f"  {label:<{width}}{text}", markup=False)
            return
        table = Table.grid(padding=0)
        table.add_column(width=width, style="dim")
        table.add_column(overflow="fold")
        table.add_row(_plain(label), _plain(text), style=style)
        self.rich.print(Padding(table, (0, 0, 0, 2)))

    def _line(self, level: str, text: str) -> None:
        style = {"error": "red", "warning": "yellow"}.get(level, "")
        stamp = summary.clock_time()
        self.rich.print(f"{stamp} {level}: {text}", markup=False, style=style)

    def _stop_spinner(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _noted(
    event: events.Notice | events.EndpointHealth | events.EndpointEjected,
) -> tuple[str, str]:
    """Return level and text of an event that is a sentence."""
    if isinstance(event, events.Notice):
        return event.level, f"{event.source}: {event.text}"
    who = f"pool {event.pool}: {event.endpoint}"
    if isinstance(event, events.EndpointEjected):
        why = f"{event.detail} (gateway {event.gateway})"
        return "warning", f"{who} ejected for {event.seconds:g} s: {why}"
    why = f": {event.detail}" if event.detail else ""
    return "warning" if event.health == "unhealthy" else "info", f"{who} is {event.health}{why}"


def _who(event: events.ReplicaUp | events.ReplicaLost | events.ReplicaHealth) -> str:
    return f"{event.model} replica {event.replica}"


def _why(event: events.ReplicaLost | events.GatewayLost) -> str:
    return f"{event.cause} ({event.detail})" if event.detail else event.cause
