"""What can't work is said in one readable message with the right exit code, and nothing is left running."""

import contextlib
import http.client
import os
import shlex
import socket
import subprocess
import sys
import textwrap
import time

import pytest

from tests.service import Service, StartError

USAGE, MODEL = 2, 3


def torchgate(*arguments, cwd, prefix=()):
    """Run the command to its end, with ports of its own."""
    command = [*prefix, sys.executable, "-m", "torchgate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=50, cwd=cwd)


def serve(*arguments, cwd, prefix=()):
    return torchgate(
        "serve", "--port", "0", "--metrics-port", "0", *arguments, cwd=cwd, prefix=prefix
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "good.py").write_text(
        textwrap.dedent(
            """
            import torch
            net = torch.nn.Linear(3, 2)
            example_inputs = torch.zeros(2, 3)
            number = 3
            """
        )
    )
    return tmp_path


def one_message(result, code):
    """Check exit code and form; return what was said."""
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr, result.stderr
    said = [line for line in result.stderr.splitlines() if line.startswith("error:")]
    assert len(said) == 1, result.stderr
    return result.stderr


@pytest.mark.pain("T27")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.py:net"], "missing.py doesn't exist"),
        (["good.py"], "good.py"),
        (["good.txt"], "good.txt"),
        (["a=good.py:net", "a=good.py:number"], "'a'"),
        (["good.py:net", "--replicas", "0"], "--replicas"),
        (["good.py:net", "--replicas", "nett=2"], "nett"),
        (["good.py:net", "--memory-limit", "2 apples"], "2 apples"),
        (["good.py:net", "--device", "cuda:7"], "cuda:7"),
        (["good.py:net", "--example", "none.npz"], "none.npz"),
        (["good.py:net", "--weights", "none.safetensors"], "none.safetensors"),
        (["good.py:net", "--nonfinite", "maybe"], "maybe"),
        (["good.py:net", "--cors", "example.org"], "example.org"),
        (["good.py:net", "--access-log", "no/such/folder/log"], "no/such/folder"),
        (["good.py:net", "--host", "no.such.host.invalid"], "no.such.host.invalid"),
        (["good.py:net", "--host", "203.0.113.7"], "203.0.113.7"),
        (["good.py:net", "--timeout", "soon"], "soon"),
        (["good.py:net", "--model-version", "a/b"], "a/b"),
    ],
)
def test_what_is_typed_wrong_is_refused_before_anything_starts(folder, arguments, said):
    assert said in one_message(serve(*arguments, cwd=folder), USAGE)


def test_an_unknown_option_names_the_nearest(folder):
    result = serve("good.py:net", "--replica", "2", cwd=folder)
    assert result.returncode == USAGE
    assert "--replicas" in result.stderr


@pytest.mark.pain("T05", "T08")
@pytest.mark.parametrize(
    ("source", "name", "said"),
    [
        ("", "nett", ["nett", "net"]),
        ("", "number", ["int", "nn.Module"]),
        ("import no_such_package", "net", ["no_such_package"]),
        ("del example_inputs", "net", ["example"]),
        ("net = torch.nn.Sequential(net, torch.nn.Linear(9, 1))", "net", ["Linear", "9"]),
        ("raise RuntimeError('not today')", "net", ["not today"]),
        ("import os; os._exit(5)", "net", ["exit code 5"]),
        ("import os; os.abort()", "net", ["SIGABRT"]),
    ],
)
def test_a_model_that_can_not_be_served_ends_the_start(folder, source, name, said):
    (folder / "model.py").write_text((folder / "good.py").read_text() + source + "\n")
    message = one_message(serve(f"model.py:{name}", cwd=folder), MODEL)
    for words in said:
        assert words in message


def test_a_start_that_takes_too_long_is_ended(folder):
    with (folder / "good.py").open("a") as file:
        file.write("import time; time.sleep(600)\n")
    message = one_message(serve("good.py:net", "--start-timeout", "3", cwd=folder), MODEL)
    assert "not ready after 3 s" in message
    assert "--start-timeout" in message


def test_one_port_for_both_listeners_is_named_as_such(folder):
    """Not as a port in use, by this very process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    result = torchgate("serve", "good.py:net", "--port", port, "--metrics-port", port, cwd=folder)
    assert f"--port and --metrics-port are both {port}" in one_message(result, USAGE)


@pytest.mark.parametrize("gateways", ["1", "2"])
def test_a_port_in_use_is_refused_and_says_by_whom(folder, gateways):
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        arguments = ["serve", "good.py:net", "--gateways", gateways]
        result = torchgate(*arguments, "--port", str(port), cwd=folder)
        message = one_message(result, USAGE)
        assert f"port {port}" in message
        assert f"pid {os.getpid()}" in message
        result = torchgate(*arguments, "--port", "0", "--metrics-port", str(port), cwd=folder)
        assert f"port {port}" in one_message(result, USAGE)


def test_a_taken_default_port_of_metrics_is_no_reason_not_to_serve(folder):
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind(("127.0.0.1", 8002))
        except OSError:
            pytest.skip("another process uses 8002 now")
        other.listen()
        service = Service("good.py:net", "--metrics-port", "8002", cwd=folder)
        service._arguments = ["good.py:net", "--port", "0"]
        with service:
            assert not service.metrics_url.endswith(":8002/metrics")
            assert any("8002" in text for text in service.events[0]["decisions"])


@pytest.mark.pain("N07")
def test_a_low_limit_of_open_files_is_raised_or_refused_with_the_way_to_mend_it(folder):
    result = serve("good.py:net", cwd=folder, prefix=("prlimit", "--nofile=64:64"))
    message = one_message(result, USAGE)
    assert "64 files" in message
    assert "LimitNOFILE" in message
    raised = serve("good.py:number", cwd=folder, prefix=("prlimit", "--nofile=256:4096"))
    assert "4,096 open files - 100 in reserve: room for 3,996 of 20,000 client" in raised.stderr


@pytest.mark.pain("N08")
def test_a_service_without_descriptors_for_clients_is_refused_with_the_sum(tmp_path):
    (tmp_path / "torchgate.toml").write_text(
        '[listeners.a]\naddress = "127.0.0.1:0"\n[listeners.b]\naddress = "127.0.0.1:0"\n'
        '[routes.hi]\npath = "/hi"\nrespond = {body = "hi"}\n[service]\nmetrics = false\n'
    )
    result = torchgate("serve", cwd=tmp_path, prefix=("prlimit", "--nofile=130:130"))
    message = one_message(result, USAGE)
    assert (
        "130 open files - 100 in reserve: room for 15 of 20,000 client connections, 2 listeners share"
        in " ".join(message.split())
    )
    assert "LimitNOFILE" in message


def test_one_failing_model_among_several_is_named_and_ends_all(folder):
    arguments = ["fine=good.py:net", "wrong=good.py:number"]
    with pytest.raises(StartError) as caught, Service(*arguments, cwd=folder):
        pass
    assert caught.value.code == MODEL
    assert "'wrong'" in caught.value.stderr


def test_an_interrupted_start_ends_quietly(folder):
    with (folder / "good.py").open("a") as file:
        file.write("import time; time.sleep(600)\n")
    service = Service("good.py:net", cwd=folder)
    service.start()
    try:
        service.wait_event("loading", phase="import")
        assert service.stop() == 0
        assert "Traceback" not in service.stderr
        service.wait_no_processes(1)
    finally:
        service.destroy()


def test_closed_standard_streams_are_no_reason_not_to_serve(folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # A shell that closes them, as a careless init script does.
    command = (
        f"exec {shlex.quote(sys.executable)} -m torchgate serve good.py:net --port {port} "
        "--metrics-port -1 <&- >&- 2>&-"
    )
    process = subprocess.Popen(["/bin/sh", "-c", command], cwd=folder)
    try:
        deadline = time.monotonic() + 45
        while not _is_ready(port):
            assert process.poll() is None, process.returncode
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def _is_ready(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    return False
