"""The worker's I/O thread: one epoll loop over the control link, the gateways' frame sockets and a wake-up.

It never imports torch and never waits for the model: it beats in the activity block while the model loads and while it
computes. An exception that escapes from it ends the process, loudly; the supervisor starts another one.

Read next: `torchgate.worker.serving` for what is done with frames.
"""

from __future__ import annotations

import collections
import os
import queue
import select
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from torchgate.clock import NS_PER_MS, NS_PER_S
from torchgate.errors import ProtocolError
from torchgate.link.arena import ArenaReader
from torchgate.link.control import ControlLink, LinkClosed
from torchgate.observe.activity import Activity
from torchgate.schema.messages import (
    AnyMessage,
    AttachGateway,
    Drain,
    LoadModel,
    LoadProgress,
    ModelFailed,
    ModelReady,
    WorkerNotice,
)
from torchgate.worker.batching import Batch
from torchgate.worker.gateway_link import GatewayLink
from torchgate.worker.hold import Hold
from torchgate.worker.log import WorkerLog
from torchgate.worker.request import Request

if TYPE_CHECKING:  # it imports torch, which takes seconds; this thread must beat before that
    from torchgate.worker.serving import Serving

_BEAT_NS = 100 * NS_PER_MS  # longest sleep: the supervisor expects a beat every 200 ms
_STATUS_NS = 20 * NS_PER_MS  # changed load is told to gateways that get no answers just now
_ORPHAN_NS = 5 * NS_PER_S  # control link gone: finish what was accepted, at most so long
_SIGTERM_NS = 30 * NS_PER_S
_LINGER_NS = 50 * NS_PER_MS  # a draining worker without work waits so long for frames on their way
_READ_BYTES = 256 * 1024
# Frames that came while others were decoded join their batch; bounded, so that no link starves another.
_FOLLOW_ROUNDS = 4
_IN, _OUT = select.EPOLLIN, select.EPOLLOUT


class LoadOrder:
    """What the I/O thread hands to the thread that loads the model.

    Attributes:
        message: The supervisor's order.
        counters_fd: Descriptor of the counter block.
        activity: The mapped activity block.
    """

    __slots__ = ("activity", "counters_fd", "message")

    def __init__(self, message: LoadModel, counters_fd: int, activity: Activity) -> None:
        self.message = message
        self.counters_fd = counters_fd
        self.activity = activity


class Loaded:
    """Posted by the loading thread: from now on requests are served.

    Attributes:
        serving: What serves them.
        ready: What the supervisor is told.
        prepare_thread: Sets what torch keeps per thread; called on the I/O thread.
    """

    __slots__ = ("prepare_thread", "ready", "serving")

    def __init__(
        self, serving: Serving, ready: ModelReady, prepare_thread: Callable[[], None]
    ) -> None:
        self.prepare_thread = prepare_thread
        self.serving = serving
        self.ready = ready


class Failed:
    """Posted by the loading thread: the model can't be served; say so and end the process."""

    __slots__ = ("exit_code", "message")

    def __init__(self, message: ModelFailed, exit_code: int) -> None:
        self.message = message
        self.exit_code = exit_code


Posted = Batch | Request | Loaded | Failed | LoadProgress | WorkerNotice


class IoLoop:
    """The loop; `run` is the body of its thread.

    Args:
        control: Link to the supervisor.
        log: The worker's log.
        exit_process: Ends the process with a code; does not return.
    """

    def __init__(
        self, control: ControlLink, log: WorkerLog, exit_process: Callable[[int], None]
    ) -> None:
        self._control = control
        self._log = log
        self._exit = exit_process
        self._epoll = select.epoll()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.signal_fd, self._signal_write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._posted: collections.deque[Posted] = collections.deque()
        self._links: dict[int, GatewayLink] = {}
        self._masks: dict[int, int] = {}
        self._serving: Serving | None = None
        self._activity: Activity | None = None
        self._buffer = bytearray(_READ_BYTES)
        self._more = False
        self._hold = Hold()
        self._drain_until_ns = 0
        self._busy_ns = 0
        self._status_ns = 0
        self._told_rows = 0
        self._control_open = True
        self._exit_when_sent: int | None = None
        self.orders: queue.SimpleQueue[LoadOrder] = queue.SimpleQueue()

    @property
    def signal_write_fd(self) -> int:
        """Where the C-level signal handler writes the number of each signal."""
        return self._signal_write_fd

    @property
    def is_orphan(self) -> bool:
        """Whether the supervisor has gone."""
        return not self._control_open

    def post(self, item: Posted) -> None:
        """Hand something to the loop; from any thread."""
        self._posted.append(item)
        os.eventfd_write(self._wake_fd, 1)

    def beat_for_inline_call(self) -> None:
        """Beat in the loop's place while it runs a batch inline; from the compute thread."""
        serving, activity = self._serving, self._activity
        if serving is not None and activity is not None and serving.running_inline:
            activity.beat(time.monotonic_ns())

    def run(self) -> None:
        """Run until the process ends."""
        for fd in (self._control.fileno(), self._wake_fd, self.signal_fd):
            self._watch(fd, _IN)
        while True:
            self._turn()

    # --- one turn ----------------------------------------------------------------------------------

    def _turn(self) -> None:
        events = self._epoll.poll(0 if self._more else self._sleep_s())
        now_ns = time.monotonic_ns()
        if self._activity is not None:
            self._activity.beat(now_ns)
        for fd, mask in events:
            link = self._links.get(fd)
            if link is not None:
                if mask & ~_OUT:
                    self._read(link)
            elif fd == self._wake_fd:
                os.eventfd_read(fd)
            elif fd == self.signal_fd:
                self._signalled()
            elif self._control_open:
                self._read_control()
        while self._posted:
            self._take_posted(self._posted.popleft())
        serving = self._serving
        if serving is not None:
            self._serve(serving)
        if self._drain_until_ns:
            self._go_on_draining()
        if self._control_open:
            self._flush_control()

    def _serve(self, serving: Serving) -> None:
        now_ns = time.monotonic_ns()
        if serving.next_deadline_ns and now_ns >= serving.next_deadline_ns:
            serving.expire()
        if self._links and self._hold.holds(self._links.values(), now_ns):
            self._more = False
        else:
            self._more = serving.start_batches()
        serving.finish_turn(now_ns)
        rows = serving.queued_rows
        tell = rows != self._told_rows and now_ns >= self._status_ns
        if tell:
            self._told_rows = rows
            self._status_ns = now_ns + _STATUS_NS
        for link in list(self._links.values()):
            if link.answered or tell:
                serving.add_status(link, now_ns)
            if link.out_bytes:
                self._flush(link)

    def _sleep_s(self) -> float:
        now_ns = time.monotonic_ns()
        until_ns = now_ns + _BEAT_NS
        serving = self._serving
        if serving is not None and serving.next_deadline_ns:
            until_ns = min(until_ns, serving.next_deadline_ns)
        if self._hold.until_ns:
            until_ns = min(until_ns, self._hold.until_ns)
        if self._drain_until_ns:
            until_ns = min(until_ns, now_ns + _LINGER_NS // 2, self._drain_until_ns)
        # Round up to whole milliseconds, epoll's grain, rather than spin through the last one.
        return max(0, until_ns - now_ns + NS_PER_MS - 1) // NS_PER_MS / 1000

    def _take_posted(self, item: Posted) -> None:
        if isinstance(item, Batch):
            self._need_serving().batch_done(item)
        elif isinstance(item, Request):
            self._need_serving().completed(item)
        elif isinstance(item, Loaded):
            self._start_serving(item)
        elif isinstance(item, Failed):
            self._send_control(item.message)
            self._exit_when_sent = item.exit_code
        else:
            self._send_control(item)

    def _need_serving(self) -> Serving:
        if self._serving is None:
            raise RuntimeError("work was finished before the model was loaded")
        return self._serving

    # --- gateways ----------------------------------------------------------------------------------

    def _start_serving(self, loaded: Loaded) -> None:
        loaded.prepare_thread()
        self._serving = loaded.serving
        self._send_control(loaded.ready)
        for link in list(self._links.values()):
            self._open(link)

    def _attach(self, message: AttachGateway, fds: list[int]) -> None:
        link = GatewayLink(socket.socket(fileno=fds[0]), ArenaReader(fds[1]), message.gateway)
        self._links[link.fileno()] = link
        if self._serving is not None:
            self._open(link)

    def _open(self, link: GatewayLink) -> None:
        # Before this the gateway's frames wait in its socket; it sends none before it is told READY.
        self._need_serving().attached(link)
        self._watch(link.fileno(), _IN)
        self._flush(link)

    def _read(self, link: GatewayLink) -> None:
        try:
            for _ in range(0 if link.paused else _FOLLOW_ROUNDS):
                frames = link.read(self._buffer)
                if not frames:
                    break
                self._busy_ns = time.monotonic_ns()
                self._need_serving().received(link, frames)
        except LinkClosed:
            self._close(link)
        except ProtocolError as error:
            self._log(f"closing the link to gateway {link.gateway}: {error.detail}")
            self._close(link)

    def _flush(self, link: GatewayLink) -> None:
        try:
            link.flush()
        except LinkClosed:
            self._close(link)
            return
        mask = (0 if link.paused else _IN) | (_OUT if link.blocked else 0)
        if mask != self._masks.get(link.fileno()):
            self._watch(link.fileno(), mask)

    def _close(self, link: GatewayLink) -> None:
        fd = link.fileno()
        del self._links[fd]
        if self._masks.pop(fd, None) is not None:
            self._epoll.unregister(fd)
        link.close()
        if self._serving is not None:
            self._serving.lost(link)

    def _watch(self, fd: int, mask: int) -> None:
        if fd in self._masks:
            self._epoll.modify(fd, mask)
        else:
            self._epoll.register(fd, mask)
        self._masks[fd] = mask

    # --- supervisor --------------------------------------------------------------------------------

    def _read_control(self) -> None:
        try:
            messages = self._control.receive()
        except LinkClosed:
            self._orphaned()
            return
        for message, fds in messages:
            self._obey(message, fds)

    def _obey(self, message: AnyMessage, fds: list[int]) -> None:
        if isinstance(message, LoadModel):
            self._activity = Activity(fds[1])
            self._activity.beat(time.monotonic_ns())
            self._log.is_of(f"{message.model.name}/{message.replica}")
            self.orders.put(LoadOrder(message, fds[0], self._activity))
        elif isinstance(message, AttachGateway):
            self._attach(message, fds)
        elif isinstance(message, Drain):
            self._drain(message.deadline_ns)
        else:
            raise RuntimeError(  # noqa: TRY004 - a wrong message, not a wrong type of ours
                f"a worker can't obey {type(message).__name__}"
            )

    def _send_control(self, message: AnyMessage) -> None:
        if not self._control_open:
            return
        try:
            self._control.send(message)
        except LinkClosed:
            self._orphaned()

    def _flush_control(self) -> None:
        if self._control.wants_write:
            try:
                self._control.flush()
            except LinkClosed:
                self._orphaned()
                return
        elif self._exit_when_sent is not None:
            self._exit(self._exit_when_sent)
        mask = _IN | (_OUT if self._control.wants_write else 0)
        if mask != self._masks[self._control.fileno()]:
            self._watch(self._control.fileno(), mask)

    def _orphaned(self) -> None:
        self._control_open = False
        self._epoll.unregister(self._control.fileno())
        self._drain(time.monotonic_ns() + _ORPHAN_NS)

    def _signalled(self) -> None:
        os.read(self.signal_fd, 512)  # only SIGTERM has a handler
        self._drain(time.monotonic_ns() + _SIGTERM_NS)

    # --- end ---------------------------------------------------------------------------------------

    def _drain(self, deadline_ns: int) -> None:
        if self._serving is None:
            self._exit(0)
            return
        first = not self._drain_until_ns
        self._drain_until_ns = deadline_ns if first else min(deadline_ns, self._drain_until_ns)
        self._busy_ns = time.monotonic_ns()
        self._serving.draining = True
        if first:
            for link in list(self._links.values()):
                self._serving.add_status(link, self._busy_ns)
                self._flush(link)

    def _go_on_draining(self) -> None:
        serving = self._need_serving()
        now_ns = time.monotonic_ns()
        unsent = any(link.out_bytes for link in self._links.values())
        if serving.in_flight or unsent:
            self._busy_ns = now_ns
        if now_ns >= self._drain_until_ns:
            serving.give_up()
            for link in list(self._links.values()):
                self._flush(link)
            self._exit(0)
        elif now_ns - self._busy_ns >= _LINGER_NS:
            self._exit(0)
