"""Small origins and clients for services with pools: one thread, one loop, many ports."""

import asyncio
import contextlib
import random
import threading


class Origins:
    """Servers on ports of 127.0.0.1 that answer with their number, after a while.

    Attributes:
        ports: Their ports.
        answered: Requests answered by each.
    """

    def __init__(self, count, *, least_s=0.0, most_s=0.0):
        self._count = count
        self._delay = (least_s, most_s)
        self._draw = random.Random(7)
        self.answered = [0] * count
        self.ports = [0] * count
        self.status = [200] * count
        self._servers = [None] * count
        self._open = [set() for _ in range(count)]
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *exc):
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    async def _main(self):
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        for number in range(self._count):
            await self._listen(number)
        self._ready.set()
        await self._end.wait()
        for number in range(self._count):
            self._close(number)

    async def _listen(self, number):
        server = await self._loop.create_server(
            lambda: _Answering(self, number), "127.0.0.1", self.ports[number]
        )
        self._servers[number] = server
        self.ports[number] = server.sockets[0].getsockname()[1]

    def _close(self, number):
        if self._servers[number] is not None:
            self._servers[number].close()
            self._servers[number] = None
        for transport in list(self._open[number]):
            transport.abort()

    def kill(self, *numbers):
        """End some as a crash would: no new connections, resets on the open ones."""
        done = threading.Event()

        def close():
            for number in numbers:
                self._close(number)
            done.set()

        self._loop.call_soon_threadsafe(close)
        assert done.wait(5)

    def start(self, number):
        """Start one again, on its old port."""
        asyncio.run_coroutine_threadsafe(self._listen(number), self._loop).result(5)


class _Answering(asyncio.Protocol):
    def __init__(self, origins, number):
        self._origins = origins
        self._number = number
        self._data = b""

    def connection_made(self, transport):
        self._transport = transport
        self._origins._open[self._number].add(transport)

    def connection_lost(self, error):
        self._origins._open[self._number].discard(self._transport)

    def data_received(self, data):
        self._data += data
        while b"\r\n\r\n" in self._data:
            _, _, self._data = self._data.partition(b"\r\n\r\n")
            wait_s = self._origins._draw.uniform(*self._origins._delay)
            asyncio.get_running_loop().call_later(wait_s, self._answer)

    def _answer(self):
        if self._transport.is_closing():
            return
        self._origins.answered[self._number] += 1
        status = self._origins.status[self._number]
        body = str(self._number).encode()
        self._transport.write(
            b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body)
        )


async def load(url, requests, clients, *, each=20, lines=b"", seen=None):
    """Ask ``requests`` times over ``clients`` connections, made anew after ``each``; return answers by status.

    A connection that breaks counts as status 0.
    """
    host, _, port = url.removeprefix("http://").partition(":")
    left = [requests]
    statuses = {}

    async def client():
        while left[0] > 0:
            reader, writer = await asyncio.open_connection(host, int(port))
            with contextlib.suppress(OSError):
                for _ in range(each):
                    if left[0] <= 0:
                        break
                    left[0] -= 1
                    status, body = await _ask(reader, writer, host.encode(), lines)
                    statuses[status] = statuses.get(status, 0) + 1
                    if seen is not None:
                        seen.append(body)
                    if status == 0:
                        break
            writer.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    return statuses


async def _ask(reader, writer, host, lines):
    writer.write(b"GET / HTTP/1.1\r\nhost: " + host + b"\r\n" + lines + b"\r\n")
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        return int(head.split(b" ", 2)[1]), await reader.readexactly(size)
    except (OSError, asyncio.IncompleteReadError, ValueError):
        return 0, b""
