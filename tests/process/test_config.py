"""A service from a configuration file, and the commands around it, as processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from tests.service import Service, StartError

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

SITE = """\
[service]
metrics = "127.0.0.1:0"
access_log = "off"
[listeners.web]
address = "127.0.0.1:0"
headers.response.set = { x-from = "file" }
[routes.hi]
path = "/hi"
respond = "${GREETING:-hello}"
[routes.go]
path = "/go"
redirect = "/hi"
"""


def torchgate(*arguments, cwd, env=None):
    return subprocess.run(
        [sys.executable, "-m", "torchgate", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        timeout=60,
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "torchgate.toml").write_text(SITE)
    return tmp_path


def test_the_file_of_the_folder_is_served_without_any_model(folder):
    with Service("--config", "torchgate.toml", cwd=folder, env={"GREETING": "good day"}) as service:
        answer = requests.get(f"{service.url}/hi", timeout=20)
        assert (answer.text, answer.headers["x-from"]) == ("good day", "file")
        assert requests.get(f"{service.url}/readyz", timeout=20).json()["status"] == "ready"
        assert requests.get(f"{service.url}/v2/models/stats", timeout=20).status_code == 200
        assert service.access_log == []
        assert service.workers() == []
        assert service.stop() == 0


def test_overlays_and_options_of_the_service_change_the_file(folder):
    (folder / "prod.toml").write_text(
        '[routes.hi]\nrespond = "prod"\n[listeners.web.headers.response]\nset.x-more = "1"\n'
    )
    arguments = ("--config", "torchgate.toml", "--overlay", "prod.toml", "--access-log", "-")
    with Service(*arguments, "--gateways", "2", cwd=folder) as service:
        answer = requests.get(f"{service.url}/hi", timeout=20)
        assert (answer.text, answer.headers["x-from"], answer.headers["x-more"]) == (
            "prod",
            "file",
            "1",
        )
        assert len(service.gateways()) == 2
        service.stop()
        assert [line["path"] for line in service.access_log] == ["/hi"]


@pytest.mark.torch
def test_a_model_of_a_file_takes_the_options_of_the_command_line(tmp_path):
    (tmp_path / "sub").mkdir()
    model = Path(__file__).parent.parent / "models" / "mlp.py"
    (tmp_path / "sub" / "mine.py").write_text(model.read_text())
    (tmp_path / "sub" / "t.toml").write_text(
        '[service]\nmetrics = "off"\n[listeners.web]\naddress = "127.0.0.1:0"\n'
        '[models.small]\ntarget = "mine.py:net"\nversion = "7"\nthreads = 1\nmax_batch = 4\n'
        '[routes.p]\npath = "/p"\nmodel = { model = "small", protocol = "oip" }\n'
    )
    with Service("--config", "sub/t.toml", cwd=tmp_path) as service:
        told = requests.get(f"{service.url}/v2/models/small", timeout=20).json()
        assert told["versions"] == ["7"]
        assert requests.get(f"{service.url}/p", timeout=20).status_code == 200
        assert service.metrics_url == ""


REFUSED = [
    ((), "nothing to serve: no TARGET, no --config, and no torchgate.toml in this folder"),
    (("m.py:net", "--config", "t.toml"), "TARGET m.py:net and --config can't go together"),
    (("m.py:net", "--overlay", "t.toml"), "TARGET m.py:net and --overlay can't go together"),
    (("--config", "t.toml", "--port", "8000"), "--port can't be given with t.toml"),
    (("--config", "t.toml", "--threads", "1", "--cors", "*"), "--cors, --threads can't be given"),
    (("--config", "t.toml", "--gateways", "65"), "--gateways 65: at most 64"),
    (("--config", "t.toml", "--grace", "x"), "--grace 'x' is not a duration"),
    (("--config", "nix.toml"), "nix.toml: doesn't exist"),
    (("--config", "bad.toml"), "bad.toml:2:1: routes.r.proxy: no pool is named 'nix'"),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED)
def test_what_cannot_be_served_is_refused_with_exit_code_2(tmp_path, arguments, said):
    (tmp_path / "t.toml").write_text(SITE)
    (tmp_path / "bad.toml").write_text('[routes.r]\nproxy = "nix"\n')
    done = torchgate("serve", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())


def test_the_file_of_the_folder_is_read_when_nothing_is_named(folder):
    (folder / "torchgate.toml").write_text('[routes.r]\nproxy = "nix"\n')
    for command in (("serve",), ("serve", "--grace", "3"), ("validate",)):
        done = torchgate(*command, cwd=folder)
        assert done.returncode == 2
        assert "torchgate.toml:2:1: routes.r.proxy: no pool is named 'nix'" in done.stderr


def test_a_mistake_is_an_event_for_machines(folder):
    (folder / "torchgate.toml").write_text('[routes.r]\nproxy = "nix"\n')
    with pytest.raises(StartError) as raised, Service("--config", "torchgate.toml", cwd=folder):
        pass
    assert raised.value.code == 2
    assert "no pool is named 'nix'" in raised.value.stderr


@pytest.mark.pain("N17")
def test_validate_says_the_same_as_serve_and_exits_alike(folder):
    done = torchgate("validate", "torchgate.toml", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "torchgate.toml: fine: 1 listener, 2 routes\n"
    (folder / "over.toml").write_text('[routes.hi]\nproxy = "nix"\n[service]\ngateway = 1\n')
    files = ("torchgate.toml", "--overlay", "over.toml")
    judged = torchgate("validate", *files, cwd=folder)
    served = torchgate("serve", "--config", *files, cwd=folder)
    assert judged.returncode == served.returncode == 2
    assert judged.stderr == served.stderr
    assert "over.toml:2:1: routes.hi.proxy: no pool is named 'nix'" in judged.stderr
    assert "over.toml:4:1: service.gateway: unknown key 'gateway'" in judged.stderr
    told = json.loads(torchgate("validate", *files, "--format", "json", cwd=folder).stdout)
    assert told["valid"] is False
    assert [(one["file"], one["line"], one["path"]) for one in told["mistakes"]] == [
        ("over.toml", 2, "routes.hi.proxy"),
        ("over.toml", 4, "service.gateway"),
    ]


@pytest.mark.pain("N17")
def test_what_the_machine_lacks_is_told_with_its_line(folder):
    model = '[models.net]\ntarget = "math:sin"\ndevice = "gpx"\n[service]\ndns = "x"\n'
    (folder / "torchgate.toml").write_text(model)
    judged = torchgate("validate", cwd=folder)
    served = torchgate("serve", cwd=folder)
    assert judged.returncode == served.returncode == 2
    assert judged.stderr == served.stderr
    assert "torchgate.toml:3:1: models.net.device: gpx: there is no 'gpx'" in judged.stderr
    assert "torchgate.toml:5:1: service.dns: got 'x', expected the address" in judged.stderr


def test_schema_prints_what_is_shipped(tmp_path):
    from torchgate.schema.document.published import SHIPPED

    done = torchgate("schema", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout == SHIPPED.read_text()


def test_help_needs_no_pydantic(tmp_path):
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "torchgate", "--help"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
    )
    assert done.returncode == 0
    assert "pydantic" not in done.stderr
    assert "rtoml" not in done.stderr


@pytest.mark.pain("N07")
def test_a_file_that_needs_more_descriptors_than_there_are_is_refused(folder):
    pool = '[pools.p]\nendpoints = ["127.0.0.1:9"]\n[routes.p]\npath = "/p"\nproxy = "p"\n'
    (folder / "torchgate.toml").write_text(SITE + pool)
    command = f"ulimit -n 130; exec {sys.executable} -m torchgate validate torchgate.toml"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=folder, timeout=60
    )
    assert done.returncode == 2
    assert "torchgate.toml: this can't work: 130 open files - 100 in reserve" in done.stderr
    assert "raise it: ulimit -n" in done.stderr
