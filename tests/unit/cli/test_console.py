"""Consoles: nobody waits for them, and they show what was meant."""

import json
import os
import threading

import msgspec
import pytest

from torchgate.cli.lines import LineConsole
from torchgate.cli.queued import QUEUE_EVENTS, QueuedConsole
from torchgate.cli.summary import curl, duration, url_rows
from torchgate.cli.text import TextConsole
from torchgate.schema.datatypes import Datatype
from torchgate.schema.signature import Batching, Signature, TensorSpec
from torchgate.supervisor import events

SIGNATURE = Signature(
    name="net",
    platform="pytorch_eager",
    inputs=(TensorSpec(name="x", datatype=Datatype.FP32, shape=("batch", 4), minimum=0.0),),
    outputs=(TensorSpec(name="y", datatype=Datatype.FP32, shape=("batch", 2)),),
    batching=Batching(merge=True, reason="[bold]equal[/]", max_rows=64),
    example=b'{"x": [1, 2, 3, 4], "it\'s": 1}',
    notes=("TorchScript is deprecated",),
)


def notice(text):
    return events.Notice(level="info", source="test", text=text)


def every_event():
    up = events.ReplicaUp(
        model="net", replica=0, incarnation=1, pid=1, start_s=2.0, load_s=0.1, row_us=18.0,
        batch_us={1: 18.0, 64: 40.0}, signature=SIGNATURE, first=True,
    )  # fmt: skip
    lost = events.ReplicaLost(
        model="net", replica=0, incarnation=1, pid=1, cause="hung", detail="[red]why", executing=2,
        max_rss_bytes=1, retry_s=0.05, failed=False,
    )  # fmt: skip
    return [
        events.Starting(pid=1, facts=("2 CPUs",), decisions=("net: 1 replica",), models=("net",)),
        events.ReplicaStarted(model="net", replica=0, incarnation=1, pid=1),
        events.Loading(model="net", replica=0, phase="import", detail="m.py:net"),
        up,
        events.GatewayUp(gateway=0, pid=2),
        events.Ready(
            urls=("http://h:1",),
            builtin=("http://h:1",),
            pages=("/",),
            metrics_url="http://h:2/metrics",
            pids={},
            start_s=2.0,
        ),
        lost,
        msgspec.structs.replace(lost, failed=True, retry_s=30.0),
        msgspec.structs.replace(up, first=False),
        events.ReplicaHealth(model="net", replica=0, responsive=False, detail="silent"),
        events.GatewayLost(gateway=0, pid=2, cause="signal", detail="SIGKILL", retry_s=0.05),
        notice("hello"),
        events.Draining(signal="SIGTERM", grace_s=30.0),
        events.StillOpen(connections=2, requests=1, left_s=29.0),
        events.Stopped(exit_code=0, detail="", unfinished=("POST /x",)),
        events.Failed(exit_code=3, what="no [name]", hint="look", detail="a\nb"),
    ]


def test_text_shows_every_event_without_reading_markup_into_it(capsys):
    console = TextConsole()
    for event in every_event():
        console.show(event)
    shown = capsys.readouterr().err
    for words in (
        "x FP32 [batch, 4] in 0..", "[bold]equal[/]", "TorchScript is deprecated",
        "POST http://h:1/models/net", "http://h:2/metrics", "[red]why", "breaker open",
        "error: no [name]", "hint:  look", "not finished: POST /x", "is ready again",
    ):  # fmt: skip
        assert words in shown, words
    assert "\x1b" not in shown, "no colour where it is not a terminal"


def test_long_names_do_not_run_into_what_was_decided(capsys):
    decisions = ("my-long-classifier: 2 replicas", "metrics: on port 5")
    TextConsole().show(
        events.Starting(
            pid=1, facts=("2 CPUs",), decisions=decisions, models=("my-long-classifier",)
        )
    )
    shown = capsys.readouterr().err
    assert "  my-long-classifier  2 replicas" in shown
    assert "  metrics             on port 5" in shown


def test_lines_are_one_json_object_each():
    read_fd, write_fd = os.pipe()
    console = LineConsole(write_fd)
    for event in every_event():
        console.show(event)
    os.close(write_fd)
    with os.fdopen(read_fd) as pipe:
        lines = [json.loads(line) for line in pipe]
    assert len(lines) == len(every_event())
    assert lines[0]["event"] == "starting"
    assert lines[3]["signature"]["inputs"][0]["name"] == "x"


def test_the_command_to_try_survives_a_shell():
    command = curl("http://h:1", SIGNATURE)
    assert command.startswith("curl http://h:1/models/net -H 'content-type: application/json' -d '")
    assert "'\"'\"'" in command


@pytest.mark.parametrize(
    ("micros", "text"), [(18.4, "18 µs"), (13600.0, "13.6 ms"), (2.5e6, "2.50 s")]
)
def test_durations_are_written_in_the_unit_that_reads_best(micros, text):
    assert duration(micros) == text


def test_a_console_that_blocks_holds_nobody_and_tells_what_was_dropped():
    gate, seen = threading.Event(), []

    class Blocked:
        def show(self, event):
            gate.wait(10)
            seen.append(event)

    console = QueuedConsole(Blocked())
    for number in range(QUEUE_EVENTS + 500):
        console.show(notice(str(number)))
    gate.set()
    console.close()
    texts = [event.text for event in seen]
    assert texts[0] == "0"
    assert any("dropped" in text for text in texts)


def test_a_console_that_fails_ends_nothing():
    class Broken:
        def show(self, event):
            raise OSError(28, "No space left on device")

    console = QueuedConsole(Broken())
    console.show(notice("x"))
    console.close()


def ready(urls, builtin):
    return events.Ready(urls=urls, builtin=builtin, pages=(), metrics_url="", pids={}, start_s=0.1)


def test_a_service_without_models_says_where_it_listens():
    rows = list(url_rows(ready(("http://h:1", "https://h:2"), ()), ()))
    assert rows == [("listening", "http://h:1"), ("", "https://h:2")]


def test_only_a_listener_with_the_built_in_paths_is_named_for_them():
    rows = list(url_rows(ready(("http://h:1", "http://h:2"), ("http://h:2",)), ("net",)))
    assert ("predict", "POST http://h:2/models/net") in rows
    assert rows[-1] == ("also on", "http://h:1")
