"""Why a process ended: our own doing first, then its last words, then how it ended."""

import pytest

from torchgate.clock import FakeClock
from torchgate.schema.config import ModelConfig
from torchgate.schema.messages import ExitCause, ModelFailed
from torchgate.supervisor.child import ProcessEnd
from torchgate.supervisor.deaths import explain, failed_start
from torchgate.supervisor.limits import OomWatch
from torchgate.supervisor.tree import Gateway, Worker

KILLED = ProcessEnd(pid=1, exit_code=None, signal_name="SIGKILL", max_rss_bytes=0)
FAULT = ProcessEnd(pid=1, exit_code=None, signal_name="SIGSEGV", max_rss_bytes=0)
LEFT = ProcessEnd(pid=1, exit_code=7, signal_name="", max_rss_bytes=0)


@pytest.fixture
def worker():
    child = Worker(ModelConfig(name="net", target="m.py:net"), 0, FakeClock())
    yield child
    child.close()


@pytest.fixture
def events_file(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/box\n")
    (tmp_path / "sys/fs/cgroup/box").mkdir(parents=True)
    file = tmp_path / "sys/fs/cgroup/box/memory.events"
    file.write_text("oom 0\noom_kill 4\n")
    return file


def test_a_signal_and_an_exit_code_are_named(worker, tmp_path):
    oom = OomWatch(tmp_path)
    assert explain(worker, FAULT, oom).cause is ExitCause.SIGNAL
    assert explain(worker, FAULT, oom).detail == "SIGSEGV"
    death = explain(worker, LEFT, oom)
    assert (death.cause, death.detail) == (ExitCause.EXIT, "exit code 7")


def test_sigkill_is_an_oom_kill_only_when_the_kernel_counted_one_since(
    worker, tmp_path, events_file
):
    oom = OomWatch(tmp_path)
    assert explain(worker, KILLED, oom).cause is ExitCause.SIGNAL
    events_file.write_text("oom 1\noom_kill 5\n")
    assert explain(worker, KILLED, oom).cause is ExitCause.OOM_KILL
    assert explain(worker, KILLED, oom).cause is ExitCause.SIGNAL


def test_our_own_reason_comes_first(worker, tmp_path):
    worker.kill_cause = ExitCause.HUNG
    assert explain(worker, KILLED, OomWatch(tmp_path)).cause is ExitCause.HUNG


def test_a_model_that_failed_says_so_itself(worker, tmp_path):
    worker.failure = ModelFailed(
        cause=ExitCause.IMPORT_ERROR, what="no module x", hint="install it", detail="trace"
    )
    death = explain(worker, LEFT, OomWatch(tmp_path))
    assert death.cause is ExitCause.IMPORT_ERROR
    failed = failed_start(worker, death)
    assert (failed.exit_code, failed.hint, failed.detail) == (3, "install it", "trace")
    assert failed.what == "model 'net': no module x"


def test_a_crash_during_the_start_names_model_phase_and_signal(worker, tmp_path):
    worker.phase = "probe"
    failed = failed_start(worker, explain(worker, FAULT, OomWatch(tmp_path)))
    assert failed.exit_code == 3
    assert "m.py:net" in failed.what
    assert "probe" in failed.what
    assert "SIGSEGV" in failed.what


def test_a_gateway_that_can_not_start_is_not_the_models_fault(tmp_path):
    gateway = Gateway(0, (), FakeClock())
    try:
        failed = failed_start(gateway, explain(gateway, LEFT, OomWatch(tmp_path)))
        assert failed.exit_code == 1
    finally:
        gateway.close()
