"""The floor of the cost: the least that a gateway and a worker process can do and still answer.

No errors, no limits, no checks, no logs, no metrics, one path: HTTP parsed by httptools on uvloop, the body
sent on in a length-prefixed frame, decoded and batched as it arrives. What torchgate costs above this is
what its features cost. ``python -m benchmarks.floor PORT`` starts both processes.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import cast

HEAD = struct.Struct("<IQ")  # body length, request number
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
BATCH_ROWS = 16


class WorkerLink(asyncio.Protocol):
    """The gateway's end of the socket pair."""

    def __init__(self) -> None:
        self.transport = cast("asyncio.WriteTransport", None)
        self.waiting: dict[int, Callable[[bytes], None]] = {}
        self.count = 0
        self.buffer = bytearray()
        self.outgoing: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.WriteTransport", transport)

    def submit(self, body: bytes, answer: Callable[[bytes], None]) -> None:
        self.count += 1
        self.waiting[self.count] = answer
        if not self.outgoing:
            asyncio.get_running_loop().call_soon(self.flush)
        self.outgoing += (HEAD.pack(len(body), self.count), body)

    def flush(self) -> None:
        self.transport.writelines(self.outgoing)
        self.outgoing = []

    def data_received(self, data: bytes) -> None:
        for number, body in cut(self.buffer, data):
            self.waiting.pop(number)(body)


class Client(asyncio.Protocol):
    """One HTTP connection."""

    def __init__(self, link: WorkerLink) -> None:
        import httptools

        self.link = link
        self.parser = httptools.HttpRequestParser(self)
        self.body: list[bytes] = []
        self.transport = cast("asyncio.WriteTransport", None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Headers are parsed, as in any server, and dropped."""

    def on_body(self, body: bytes) -> None:
        self.body.append(body)

    def on_message_complete(self) -> None:
        body, self.body = b"".join(self.body), []
        self.link.submit(body, self.answer)

    def answer(self, body: bytes) -> None:
        # uvloop raises for a client that has gone, in the link's callback: that would end the link.
        if not self.transport.is_closing():
            self.transport.write(ANSWER % len(body) + body)


def cut(buffer: bytearray, data: bytes) -> list[tuple[int, bytes]]:
    """Return the complete frames of ``buffer`` with ``data`` added, and keep the rest in it."""
    buffer += data
    frames, offset = [], 0
    while len(buffer) - offset >= HEAD.size:
        length, number = HEAD.unpack_from(buffer, offset)
        end = offset + HEAD.size + length
        if end > len(buffer):
            break
        frames.append((number, bytes(buffer[offset + HEAD.size : end])))
        offset = end
    del buffer[:offset]
    return frames


async def serve(port: int, link_socket: socket.socket) -> None:
    """Run the gateway until it is terminated."""
    loop = asyncio.get_running_loop()
    _, link = await loop.create_connection(WorkerLink, sock=link_socket)
    server = await loop.create_server(lambda: Client(link), "127.0.0.1", port)
    await server.serve_forever()


def work(link_socket: socket.socket) -> None:
    """Run the worker until its gateway is gone."""
    import msgspec
    import numpy as np
    import torch

    from benchmarks.models.mlp import Mlp

    torch.set_num_threads(1)
    net, buffer = Mlp().eval(), bytearray()
    decoder, encoder = msgspec.json.Decoder(dict[str, list[float]]), msgspec.json.Encoder()
    with torch.inference_mode():
        while data := link_socket.recv(1 << 20):
            frames = cut(buffer, data)
            out: list[bytes] = []
            for start in range(0, len(frames), BATCH_ROWS):
                batch = frames[start : start + BATCH_ROWS]
                rows = np.array([decoder.decode(body)["x"] for _, body in batch], np.float32)
                for (number, _), row in zip(
                    batch, net(torch.from_numpy(rows))["y"].tolist(), strict=True
                ):
                    answer = encoder.encode({"y": row})
                    out += (HEAD.pack(len(answer), number), answer)
            link_socket.sendall(b"".join(out))


def main() -> None:
    """Start the worker as a child and be the gateway."""
    if sys.argv[1] == "work":
        work(socket.socket(fileno=int(sys.argv[2])))
        return
    import uvloop

    mine, theirs = socket.socketpair()
    theirs.set_inheritable(True)
    command = [sys.executable, "-m", "benchmarks.floor", "work", str(theirs.fileno())]
    with subprocess.Popen(command, close_fds=False) as worker:
        theirs.close()
        mine.setblocking(False)
        try:
            uvloop.run(serve(int(sys.argv[1]), mine))
        finally:
            worker.terminate()


if __name__ == "__main__":
    main()
