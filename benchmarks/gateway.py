"""What the gateway costs without a model: ``python benchmarks/gateway.py``.

One gateway process answers ``/healthz`` (parse, route, answer, access log to a file) under ``wrk``; the figure that
counts is
its CPU time per request, since on a small machine the load generator takes the other core. Also: memory per
idle connection. Needs wrk (``apt-get install wrk``).
"""

import argparse
import contextlib
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.process.gateway_driver import GatewayProcess

GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


def load(gateway, connections, seconds):
    """Return requests/s and the gateway's CPU µs per request under wrk."""
    cpu_s = gateway.cpu_s()
    before = gateway.metric("torchgate_requests_total")
    subprocess.run(
        [
            "wrk",
            "-t1",
            f"-c{connections}",
            f"-d{seconds}s",
            f"http://127.0.0.1:{gateway.port}/healthz",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    requests = gateway.metric("torchgate_requests_total") - before
    return requests / seconds, (gateway.cpu_s() - cpu_s) / requests * 1e6


def idle(gateway, count):
    """Return resident bytes per idle connection that has had one request."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 1000), hard))
    before = gateway.rss_bytes()
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            sock = stack.enter_context(gateway.connect(GET))
            sock.recv(4096)
        each = (gateway.rss_bytes() - before) / count
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return each


def main():
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle", type=int, default=10_000)
    options = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("wrk is not installed (apt-get install wrk)")
    print("| what | requests/s | gateway CPU µs a request |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for log in ("off", f"{folder}/access.log"):
            with GatewayProcess(Path(folder), log=log) as gateway:
                load(gateway, 32, 1)  # warm
                name = "no log" if log == "off" else "access log"
                for _ in range(options.rounds):
                    rate, cpu_us = load(gateway, 32, options.seconds)
                    print(f"| /healthz, 32 connections, {name} | {rate:,.0f} | {cpu_us:.1f} |")
        with GatewayProcess(Path(folder)) as gateway:
            load(gateway, 32, 1)
            print(
                f"\n{idle(gateway, options.idle):,.0f} bytes per idle connection ({options.idle:,} connections)"
            )


if __name__ == "__main__":
    main()
