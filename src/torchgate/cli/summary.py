"""Words about a model for the start-up text: signature, batching, measured times, URLs, a request to try."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Iterator, Sequence

from torchgate.schema.signature import Signature, TensorSpec
from torchgate.schema.words import counted
from torchgate.supervisor.events import Ready, ReplicaUp

PHASES = {
    "import": "importing",
    "load": "loading on",
    "weights": "reading weights",
    "probe": "calling it with 1, 2 and 3 rows",
    "warm": "measuring batch sizes",
}
"""What a starting worker does, by phase."""

INLINE_EXAMPLE_BYTES = 400  # a longer example is fetched instead of typed


def model_rows(event: ReplicaUp) -> Iterator[tuple[str, str]]:
    """Yield label and text for each thing worth knowing about a model that became ready."""
    signature = event.signature
    for index, spec in enumerate(signature.inputs):
        yield ("" if index else "input"), f"{spec.name} {_spec(spec)}"
    if signature.decode_types:
        yield "decode", f"takes {', '.join(signature.decode_types)}"
    for index, spec in enumerate(signature.outputs):
        yield ("" if index else "output"), f"{spec.name} {_spec(spec)}"
    batching = signature.batching
    merge = (
        f"up to {counted(batching.max_rows, 'row')} in one call"
        if batching.merge
        else "one request at a time"
    )
    yield "batching", f"{merge}: {batching.reason}" if batching.reason else merge
    yield "speed", _speed(event)
    for note in signature.notes:
        yield "note", note


def url_rows(event: Ready, models: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield label and URL of everything that can be opened or called."""
    if event.builtin:
        yield from _builtin_rows(event, event.builtin[0], models)
    if event.metrics_url:
        yield "metrics", event.metrics_url
    shown = event.builtin[:1] if models else ()
    for index, url in enumerate(url for url in event.urls if url not in shown):
        yield "also on" if shown else ("" if index else "listening"), url


def _builtin_rows(event: Ready, base: str, models: Sequence[str]) -> Iterator[tuple[str, str]]:
    for page in event.pages:
        yield "open", f"{base}{page}"
    for index, model in enumerate(models):
        yield ("" if index else "predict"), f"POST {base}/models/{model}"
    for index, model in enumerate(models):
        yield ("" if index else "OIP v2"), f"POST {base}/v2/models/{model}/infer"
    yield "docs", f"{base}/docs"
    yield "health", f"{base}/readyz"


def curl(base: str, signature: Signature) -> str:
    """Return a command that makes a prediction, as it can be pasted into a shell."""
    url = shlex.quote(f"{base}/models/{signature.name}")
    example = signature.example
    if example is not None and len(example) <= INLINE_EXAMPLE_BYTES:
        return f"curl {url} -H 'content-type: application/json' -d {shlex.quote(example.decode())}"
    if signature.decode_types:
        kind = signature.decode_types[0]
        return f"curl {url} -H {shlex.quote(f'content-type: {kind}')} --data-binary @FILE"
    return f"curl {url}   # shows the signature; {base}/docs has an example to send"


def clock_time() -> str:
    """Return the time of day for a log line, with the date left to whoever collects it."""
    return dt.datetime.now().astimezone().strftime("%H:%M:%S")


def duration(micros: float) -> str:
    """Return microseconds in the unit that reads best."""
    if micros < 1000:
        return f"{micros:.0f} µs"
    if micros < 1_000_000:
        return f"{micros / 1000:.1f} ms"
    return f"{micros / 1_000_000:.2f} s"


def _spec(spec: TensorSpec) -> str:
    text = spec.describe()
    if spec.minimum is not None or spec.maximum is not None:
        low = "" if spec.minimum is None else f"{spec.minimum:g}"
        high = "" if spec.maximum is None else f"{spec.maximum:g}"
        text += f" in {low}..{high}"
    if spec.labels:
        shown = ", ".join(spec.labels[:4])
        text += f" labels {shown}{', ...' if len(spec.labels) > 4 else ''}"
    return text


def _speed(event: ReplicaUp) -> str:
    parts = [f"{duration(event.row_us)} for one row"]
    if event.batch_us:
        rows, micros = max(event.batch_us.items(), key=lambda item: item[0] / max(item[1], 1e-9))
        if rows > 1:
            parts.append(f"{duration(micros)} for {rows}, {rows / micros * 1e6:,.0f} rows/s")
    return f"{', '.join(parts)}; loaded in {event.load_s:.1f} s"
