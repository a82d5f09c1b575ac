"""The guard refuses what a forged request would aim at, in every spelling, unless the pool allows it."""

import pytest

from torchgate.supervisor.guard import Guard


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("169.254.169.254", "metadata"),
        ("169.254.170.2", "metadata"),
        ("100.100.100.200", "metadata"),
        ("fd00:ec2::254", "metadata"),
        ("::ffff:169.254.169.254", "metadata"),
        ("::ffff:a9fe:a9fe", "metadata"),
        ("64:ff9b::a9fe:a9fe", "metadata"),
        ("2002:a9fe:a9fe::1", "metadata"),
        ("::a9fe:a9fe", "metadata"),
        ("::ffff:0:a9fe:a9fe", "metadata"),
        ("64:ff9b:1::a9fe:a9fe", "metadata"),
        ("64:ff9b:1:a9fe:a9:fe00::", "metadata"),
        ("64:ff9b:1:a9:fe:a9fe::", "metadata"),
        ("64:ff9b:1:0:a9:fea9:fe00:0", "metadata"),
        ("2001:db8::5efe:a9fe:a9fe", "metadata"),
        ("2001:db8::200:5efe:169.254.169.254", "metadata"),
        ("2001:0:0:0:0:0:5601:5601", "metadata"),
        ("169.254.1.1", "link-local"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "unspecified"),
        ("::", "unspecified"),
        ("::ffff:0.0.0.0", "unspecified"),
        ("255.255.255.255", "broadcast"),
    ],
)
def test_refused(address, what):
    assert what in Guard(()).refusal(address, 80)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "::1",
        "10.0.0.1",
        "192.168.1.1",
        "8.8.8.8",
        "2001:db8::1",
        "64:ff9b:1::8.8.8.8",
        "64:ff9b::8.8.8.8",
        "unix:/x",
    ],
)
def test_allowed(address):
    assert Guard(()).refusal(address, 80) == ""


@pytest.mark.parametrize("address", ["169.254.169.254", "::ffff:169.254.169.254"])
def test_allow_lets_through_in_every_spelling(address):
    assert Guard(("169.254.169.254/32",)).refusal(address, 80) == ""
    assert Guard(("169.254.169.253",)).refusal(address, 80) != ""


@pytest.mark.parametrize(
    ("bound", "address", "refused"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "::ffff:127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", True),
        ("127.0.0.1", "64:ff9b:1::127.0.0.1", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("::", "127.0.0.1", True),
        ("0.0.0.0", "192.0.2.1", False),
        ("10.0.0.1", "127.0.0.1", False),
    ],
)
@pytest.mark.pain("N10")
def test_own_listener(bound, address, refused):
    guard = Guard((), [(bound, 8002)])
    assert bool(guard.refusal(address, 8002)) == refused
    assert guard.refusal(address, 8003) == ""
    assert Guard(("127.0.0.0/8",), [(bound, 8002)]).refusal("127.0.0.1", 8002) == ""


@pytest.mark.pain("N10")
def test_own_listener_on_a_unix_socket(tmp_path):
    link = tmp_path / "link.sock"
    link.symlink_to(tmp_path / "metrics.sock")
    guard = Guard((), [(f"unix:{tmp_path}/metrics.sock", 0), ("fe80::1%lo", 8002)])
    assert "our own" in guard.refusal(f"unix:{tmp_path}/metrics.sock", 0)
    assert "our own" in guard.refusal(f"unix:{link}", 0)
    assert guard.refusal(f"unix:{tmp_path}/app.sock", 0) == ""
