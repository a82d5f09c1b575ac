"""The workers started ahead are those wanted, or none is kept."""

import inspect
import os
import typing

import pytest
import typer

from torchgate.cli import head_start, machine, serve
from torchgate.cli.app import app
from torchgate.cli.build import build
from torchgate.supervisor.environment import place, worker_environment
from torchgate.supervisor.host import HostFacts
from torchgate.supervisor.launch import Ahead
from torchgate.supervisor.strays import mark_of


@pytest.fixture
def model(tmp_path):
    file = tmp_path / "model.py"
    file.write_text("net = other = None\n")
    return str(file)


def test_the_options_without_a_value_are_those_of_serve():
    flags = set()
    hints = typing.get_type_hints(serve.serve, include_extras=True)
    for name, parameter in inspect.signature(serve.serve).parameters.items():
        if hints[name] is typer.Context:
            continue
        annotation, info = typing.get_args(hints[name])[:2]
        if annotation is bool:
            flag = name.replace("_", "-")
            both = [f"--{flag}", f"--no-{flag}"] if parameter.default else [f"--{flag}"]
            flags.update(info.param_decls or both)
    assert flags == head_start.FLAGS


FOUR_CPUS = HostFacts(
    affinity=4, physical=4, quota=None, memory_bytes=1 << 34, memory_limited=False
)


@pytest.fixture
def four_cpus(monkeypatch):
    monkeypatch.setattr(machine, "inspect_host", lambda: FOUR_CPUS)
    machine.facts.cache_clear()
    yield
    machine.facts.cache_clear()


# Command lines with MODEL for the model's file.
SERVED = [
    "serve MODEL:net",
    "serve MODEL:net --port 0",
    "serve --port=0 MODEL:net --threads 3",
    "serve --threads=3 --no-compress MODEL:net",
    "serve --public-metrics MODEL:net",
    "serve a=MODEL:net b=MODEL:other --threads b=2 --replicas a=2",
    "serve a=MODEL:net b=MODEL:other --threads a=2 --threads 5",
    "serve --device cpu -- MODEL:net",
    "serve MODEL:net --replicas 2 --format json",
    "serve --cors * MODEL:net --compress --access-log -",
    "serve MODEL:net --replicas 6",
    "serve a=MODEL:net b=MODEL:other --replicas a=3 --replicas b=3",
    "demo",
    "demo --port 0",
]


@pytest.mark.parametrize("line", SERVED)
@pytest.mark.usefixtures("four_cpus")
def test_workers_are_started_in_the_environments_that_are_wanted(monkeypatch, model, line):
    arguments = line.replace("MODEL", model).split()
    started, typed = [], []
    monkeypatch.setattr(
        head_start.workers, "start", lambda module, env, _now: started.append((module, env))
    )
    monkeypatch.setattr(serve, "start", lambda options, _format: typed.append(options))
    monkeypatch.setattr("torchgate.cli.demo.start", lambda options, _format: typed.append(options))

    head_start.begin(arguments)
    app(arguments, standalone_mode=False)

    wanted = [
        worker_environment(config, place(config.device, replica), mark_of(config.name, replica, 1))
        for config in build(typed[0]).config.models
        for replica in range(config.replicas)
    ]
    assert started == [("torchgate.worker", env) for env in wanted[:4]]


CONFIGURED = [
    '[models.a]\ntarget = "MODEL:net"',
    '[models.a]\ntarget = "MODEL:net"\nthreads = 1\n[models.b]\ntarget = "MODEL:other"\nreplicas = 2',
    '[models.a]\ntarget = "MODEL:net"\ndevice = "cpu"\nreplicas = 3',
]


@pytest.mark.parametrize("text", CONFIGURED)
@pytest.mark.usefixtures("four_cpus")
def test_workers_of_a_configuration_file_are_started_ahead_too(monkeypatch, tmp_path, model, text):
    (tmp_path / "torchgate.toml").write_text(text.replace("MODEL", model))
    monkeypatch.chdir(tmp_path)
    started, typed = [], []
    monkeypatch.setattr(head_start.workers, "start", lambda _module, env, _now: started.append(env))
    monkeypatch.setattr(serve, "start", lambda options, _format: typed.append(options))

    head_start.begin(["serve"])
    app(["serve"], standalone_mode=False)

    assert started == [
        worker_environment(config, place(config.device, replica), mark_of(config.name, replica, 1))
        for config in build(typed[0]).config.models
        for replica in range(config.replicas)
    ]


@pytest.mark.parametrize("text", ["", "[models", "models = 3", "[models.a]\ntarget = 3", "\xff"])
def test_a_file_that_is_wrong_starts_nothing(monkeypatch, tmp_path, text):
    (tmp_path / "torchgate.toml").write_bytes(text.encode("latin-1"))
    monkeypatch.chdir(tmp_path)
    started = []
    monkeypatch.setattr(head_start.workers, "start", lambda *_: started.append(1))
    head_start.begin(["serve"])
    assert not started


@pytest.mark.parametrize(
    "line",
    [
        "",
        "serve",
        "serve --help",
        "serve MODEL:net --help",
        "serve MODEL:net --threads none",
        "serve MODEL:net MODEL:net",
        "serve MODEL:net --device cuda:9",
        "serve MODEL:net --threads",
    ],
)
def test_nothing_is_started_for_what_will_be_refused(monkeypatch, model, line):
    started = []
    monkeypatch.setattr(head_start.workers, "start", lambda *_: started.append(1))
    head_start.begin(line.replace("MODEL", model).split())
    assert not started


def test_the_machine_is_looked_at_once():
    assert machine.facts() is machine.facts()


ENV = {**os.environ, "TORCHGATE_WORKER": "here"}


@pytest.fixture
def ahead():
    holder = Ahead()
    holder.start("torchgate.worker", ENV, 5)
    yield holder
    holder.end()


def test_a_process_in_another_environment_is_not_taken_and_ends(ahead):
    pid = ahead._launched[0].process.pid
    assert ahead.take(ENV | {"TORCHGATE_WORKER": "there"}) is None
    ahead.end()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert ahead.take(ENV) is None


def test_a_process_is_taken_once(ahead):
    launched = ahead.take(ENV)
    try:
        assert launched.started_ns == 5
        assert ahead.take(ENV) is None
        ahead.end()
        os.kill(launched.process.pid, 0)
    finally:
        launched.end()
