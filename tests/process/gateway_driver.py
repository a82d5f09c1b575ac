"""A real gateway process, with the test in the supervisor's place."""

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from torchgate.clock import NS_PER_S
from torchgate.link.control import LinkClosed, control_pair
from torchgate.link.load_table import create_load_table
from torchgate.observe.counters import CounterBlock, create_block
from torchgate.schema.config import Limits, ListenerConfig, ModelConfig
from torchgate.schema.front import FrontConfig
from torchgate.schema.messages import ConfigureGateway, Drain, GatewayReady

BLOCKING = """
import runpy, sys, time
from torchgate.gateway import handlers
from torchgate.gateway.router import Route
real = handlers.routes
def a_call_that_blocks(exchange):
    time.sleep(0.5)
    exchange.respond(200, "text/plain", b"at last")
handlers.routes = lambda *a: real(*a).extended([Route("/block", {b"GET": a_call_that_blocks})])
runpy.run_module("torchgate.gateway", run_name="__main__", alter_sys=True)
"""
"""The gateway with one handler more, which does what no handler may do."""


class GatewayProcess:
    """Start a gateway, wait until it accepts, and end it whatever happens."""

    def __init__(
        self,
        tmp_path,
        *,
        log="off",
        nofile=None,
        blocking=False,
        code="",
        front=None,
        tls=None,
        **limits,
    ):
        self.link, theirs = control_pair()
        self.messages = []
        self._sockets = []
        self.stderr_file = tmp_path / "stderr"
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen(4096)
        self.port = listening.getsockname()[1]
        block_fd = create_block()
        table_fd = create_load_table()
        self.counters = CounterBlock(block_fd)

        prefix = ["prlimit", f"--nofile={nofile[0]}:{nofile[1]}"] if nofile else []
        stderr = self.stderr_file.open("wb")
        code = BLOCKING if blocking else code
        command = ["-c", code] if code else ["-m", "torchgate.gateway"]
        self.process = subprocess.Popen(
            [*prefix, sys.executable, *command, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
        theirs.close()
        stderr.close()
        self.link.send(
            ConfigureGateway(
                fds=3,
                gateway=0,
                listeners=(ListenerConfig(port=self.port, limits=Limits(**limits), tls=tls),),
                models=(ModelConfig(name="m", target="m.py:m"),),
                access_log=str(log),
                started_unix_s=0.0,
                front=front or FrontConfig(),
            ),
            [listening.fileno(), block_fd, table_fd],
        )
        listening.close()
        os.close(block_fd)
        os.close(table_fd)

    def __enter__(self):
        self.wait_message(GatewayReady)
        return self

    def __exit__(self, *exc):
        for sock in self._sockets:
            sock.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.link.close()
        self.counters.values.release()
        self.counters._map.close()

    @property
    def stderr(self):
        return self.stderr_file.read_text()

    def wait_message(self, kind, timeout_s=10):
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            for message in self.messages:
                if isinstance(message, kind):
                    return message
            with contextlib.suppress(LinkClosed):
                self.messages += [message for message, _fds in self.link.receive()]
            time.sleep(0.01)
        raise AssertionError(f"no {kind.__name__}; got {self.messages}; stderr: {self.stderr}")

    def drain(self, seconds):
        self.link.send(Drain(deadline_ns=time.monotonic_ns() + int(seconds * NS_PER_S)))

    def connect(self, data=b""):
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        self._sockets.append(sock)
        sock.sendall(data)
        return sock

    def metric(self, name, *labels):
        return sum(
            sample.values[0]
            for sample in self.counters.samples()
            if sample.name == name and (not labels or sample.labels == labels)
        )

    def cpu_s(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_bytes(self):
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    def open_fds(self):
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)
