"""What children inherit."""

import pytest

from torchgate.schema.config import ModelConfig
from torchgate.supervisor.environment import Placement, place, worker_environment
from torchgate.supervisor.strays import MARK

MODEL = ModelConfig(name="net", target="m:net", threads=3)
CPU = Placement(device="cpu", visible=None)


def test_threads_and_mark_reach_the_worker(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    env = worker_environment(MODEL, CPU, "1/net/0/1")
    assert env["OMP_NUM_THREADS"] == env["MKL_NUM_THREADS"] == "3"
    assert env[MARK] == "1/net/0/1"


def test_what_the_user_has_set_wins(monkeypatch):
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    assert worker_environment(MODEL, CPU, "x")["GOMP_SPINCOUNT"] == "7"


@pytest.mark.parametrize(
    ("device", "replica", "inherited", "expected"),
    [
        ("cpu", 3, "", ("cpu", None)),
        ("cuda:0,cuda:1", 0, "", ("cuda:0", "0")),
        ("cuda:0,cuda:1", 3, "", ("cuda:0", "1")),
        ("cuda:1", 0, "4,7", ("cuda:0", "7")),
        ("cuda:0", 0, "GPU-abc", ("cuda:0", "GPU-abc")),
    ],
)
def test_a_worker_sees_only_its_own_gpu(monkeypatch, device, replica, inherited, expected):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", inherited)
    placement = place(device, replica)
    assert (placement.device, placement.visible) == expected
