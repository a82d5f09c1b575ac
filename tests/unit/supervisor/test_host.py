"""Host facts from made-up control group trees, and what is decided from them."""

import pytest

from torchgate.errors import ConfigError
from torchgate.supervisor import host
from torchgate.supervisor.host import HostFacts, Wanted, decide, gateways_for, inspect_host

GIB = 1024**3


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1, 2, 3})
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    write(tmp_path, "proc/meminfo", "MemTotal:       16777216 kB\n")
    return tmp_path


def write(root, path, text):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def facts(**changes):
    base = {
        "affinity": 8,
        "physical": 8,
        "quota": None,
        "memory_bytes": 16 * GIB,
        "memory_limited": False,
    }
    return HostFacts(**{**base, **changes})


def test_cgroup_v2_quota_and_memory_are_the_least_on_the_way_up(root):
    write(root, "proc/self/cgroup", "0::/kube/pod/box\n")
    write(root, "sys/fs/cgroup/kube/pod/box/cpu.max", "max 100000\n")
    write(root, "sys/fs/cgroup/kube/pod/cpu.max", "250000 100000\n")
    write(root, "sys/fs/cgroup/kube/cpu.max", "400000 100000\n")
    write(root, "sys/fs/cgroup/kube/pod/memory.max", f"{2 * GIB}\n")
    write(root, "sys/fs/cgroup/kube/pod/box/memory.max", "max\n")
    found = inspect_host(root)
    assert (found.quota, found.cores) == (2.5, 2)
    assert (found.memory_bytes, found.memory_limited) == (2 * GIB, True)


def test_cgroup_v1_quota_and_memory(root):
    write(root, "proc/self/cgroup", "5:memory:/box\n4:cpu,cpuacct:/box\n0::/\n")
    write(root, "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "150000\n")
    write(root, "sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n")
    write(root, "sys/fs/cgroup/memory/box/memory.limit_in_bytes", f"{3 * GIB}\n")
    found = inspect_host(root)
    assert found.quota == 1.5
    assert found.memory_bytes == 3 * GIB


def test_no_limits_means_the_machine(root):
    write(root, "proc/self/cgroup", "4:memory:/\n0::/\n")
    write(root, "sys/fs/cgroup/cpu.max", "max 100000\n")
    write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    found = inspect_host(root)
    assert found.quota is None
    assert (found.memory_bytes, found.memory_limited) == (16 * GIB, False)


def test_a_path_of_the_host_that_does_not_exist_in_the_container_falls_back_to_the_root(root):
    write(root, "proc/self/cgroup", "0::/docker/0123\n")
    write(root, "sys/fs/cgroup/cpu.max", "100000 100000\n")
    assert inspect_host(root).quota == 1.0


def test_threads_of_one_core_count_once(root):
    for cpu in range(4):
        path = f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        write(root, path, f"{cpu % 2},{cpu % 2 + 2}\n")
    assert inspect_host(root).physical == 2


def test_unreadable_files_are_no_reason_to_fail(root):
    write(root, "proc/self/cgroup", "0::/\n")
    write(root, "sys/fs/cgroup/cpu.max", "nonsense\n")
    found = inspect_host(root)
    assert found.quota is None
    assert found.physical == 4


def test_gpus_need_a_cuda_build(root, monkeypatch):
    write(root, "proc/driver/nvidia/gpus/0000:01/information", "Model: \t NVIDIA H200\n")
    monkeypatch.setattr(host, "_torch_has_cuda", lambda: False)
    found = inspect_host(root)
    assert found.gpus == ()
    assert "CPU build" in found.gpu_note
    monkeypatch.setattr(host, "_torch_has_cuda", lambda: True)
    assert inspect_host(root).gpus == ("NVIDIA H200",)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "hidden" in inspect_host(root).gpu_note


@pytest.mark.parametrize(
    ("cores", "models", "replicas", "threads"),
    [(1, 1, 1, 1), (2, 1, 1, 2), (8, 1, 1, 8), (16, 1, 2, 8), (8, 4, 1, 2), (2, 4, 1, 1)],
)
def test_replicas_and_threads_share_the_cores(cores, models, replicas, threads):
    decision = decide(facts(affinity=cores, physical=cores), models, Wanted())
    assert (decision.replicas, decision.threads, decision.device) == (replicas, threads, "cpu")


def test_the_quota_counts_not_the_machine():
    assert decide(facts(affinity=64, physical=64, quota=2.5), 1, Wanted()).threads == 2


def test_what_is_asked_for_wins_and_the_rest_follows():
    decision = decide(facts(), 1, Wanted(replicas=4))
    assert (decision.replicas, decision.threads) == (4, 2)
    assert "as asked" in decision.reason


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (Wanted(), ""),
        (Wanted(replicas=2), ""),
        (Wanted(threads=4), ""),
        (Wanted(threads=5), "5 threads share 4 usable CPUs"),
        (Wanted(replicas=5), "5 replicas with 1 thread each share 4 usable CPUs"),
        (Wanted(replicas=2, threads=3), "2 replicas with 3 threads each share 4 usable CPUs"),
    ],
)
def test_more_threads_than_cpus_are_warned_of(wanted, words):
    warning = decide(facts(affinity=4, physical=4), 1, wanted).warning
    assert warning.startswith(words)
    assert bool(warning) == bool(words)


def test_what_the_machine_decides_is_never_warned_of():
    for cores in range(1, 65):
        for quota in (None, 0.5, 1.5, 3.0):
            for models in (1, 2, 5):
                host = facts(affinity=2 * cores, physical=cores, quota=quota)
                assert decide(host, models, Wanted()).warning == ""


def test_one_replica_per_gpu():
    decision = decide(facts(gpus=("H200", "H200")), 1, Wanted())
    assert (decision.replicas, decision.device) == (2, "cuda:0,cuda:1")


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "tpu", "cuda:x"])
def test_a_device_that_is_not_there_is_refused(device):
    with pytest.raises(ConfigError, match="--device"):
        decide(facts(gpus=("H200",) if device == "cuda:1" else ()), 1, Wanted(device=device))


@pytest.mark.parametrize(("cores", "gateways"), [(1, 1), (4, 1), (5, 2), (16, 4), (128, 8)])
def test_gateways_grow_with_cores(cores, gateways):
    assert gateways_for(facts(affinity=cores, physical=cores)) == gateways
