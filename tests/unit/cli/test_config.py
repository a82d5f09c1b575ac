"""What the command line adds to a configuration file."""

import pytest

from torchgate.cli.build import Typed, build
from torchgate.cli.config import WITH_FILE, chosen_files
from torchgate.cli.judged import summary
from torchgate.errors import ConfigError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "torchgate.toml").write_text(
        '[service]\nmetrics = "127.0.0.1:9"\ngrace = "3s"\n'
        '[models.net]\ntarget = "model.py:net"\nthreads = 1\ntimeout = "2s"\n'
    )
    (tmp_path / "model.py").write_text("net = None\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def typed(*given, **options):
    return Typed(targets=[], files=("torchgate.toml",), given=frozenset(given), **options)


def test_what_is_not_written_is_decided_from_the_machine(folder):
    built = build(typed())
    (model,) = built.config.models
    assert (model.threads, model.replicas >= 1, model.device) == (1, True, "cpu")
    assert (model.timeout_s, built.config.gateways >= 1) == (2.0, True)
    assert built.config.work_dir == str(folder)
    assert built.introduction.metrics_port_given
    assert any(line.startswith("net: ") for line in built.introduction.decisions)
    assert built.introduction.decisions[-1] == "config: torchgate.toml"


@pytest.mark.usefixtures("folder")
def test_options_of_the_service_win_over_the_file():
    config = build(
        typed(
            "metrics_host", "grace", metrics_host="127.0.0.2", metrics_port=0, grace="9", gateways=2
        )
    ).config
    assert (config.metrics.host, config.metrics.port) == ("127.0.0.2", 0)
    assert (config.grace_s, config.gateways) == (9.0, 2)


@pytest.mark.usefixtures("folder")
def test_defaults_of_options_do_not_win_over_the_file():
    config = build(typed()).config
    assert (config.metrics.port, config.grace_s) == (9, 3.0)


@pytest.mark.usefixtures("folder")
def test_an_option_that_the_file_says_is_refused():
    with pytest.raises(ConfigError, match=r"--max-batch can.t be given with torchgate\.toml"):
        build(typed("max_batch"))
    assert "port" not in WITH_FILE


@pytest.mark.usefixtures("folder")
def test_a_file_that_is_there_and_not_read_is_told():
    built = build(Typed(targets=["model.py:net"]))
    assert "torchgate.toml of this folder is not read" in built.introduction.decisions[-1]


@pytest.mark.usefixtures("folder")
def test_targets_files_and_overlays():
    assert chosen_files([], None, ["o.toml"]) == ("torchgate.toml", "o.toml")
    assert chosen_files([], "a.toml", []) == ("a.toml",)
    assert chosen_files(["m.py:net"], None, []) == ()
    with pytest.raises(ConfigError) as raised:
        chosen_files(["net=m.py:net"], "a.toml", [])
    assert raised.value.hint.endswith('[models.NAME] with target = "m.py:net"')


@pytest.mark.usefixtures("folder")
def test_a_summary_counts_what_is_there():
    assert list(summary(build(typed()).config)) == ["1 listener", "1 model"]
