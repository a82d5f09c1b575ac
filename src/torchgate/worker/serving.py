"""What a loaded worker does with frames: decode, queue, start batches, encode, answer. Runs on the I/O thread.

Every INFER gets exactly one RESULT, whatever happens to it: a result, an error, or, when it was cancelled, an
empty answer with cause ``client-gone`` (the gateway frees its arena space by it). A link that dies takes its
requests along.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from torchgate.clock import NS_PER_S, NS_PER_US
from torchgate.errors import Cause, ProtocolError, RequestError
from torchgate.observe.activity import IO_LANE
from torchgate.observe.resident import Resident
from torchgate.schema.messages import WorkerNotice
from torchgate.schema.words import counted
from torchgate.wire.frames import SHARED, Frame, FrameType, StatusMeta
from torchgate.worker.answers import Answers
from torchgate.worker.batching import Batch, Batcher
from torchgate.worker.codec import Codec
from torchgate.worker.codec_pool import CodecPool
from torchgate.worker.compute import ComputeThread
from torchgate.worker.gateway_link import GatewayLink
from torchgate.worker.log import WorkerLog
from torchgate.worker.metrics import WorkerMetrics
from torchgate.worker.request import Request, Stage
from torchgate.worker.routes import INLINE_JSON_BYTES, Routes
from torchgate.worker.runner import Runner, describe

# Enum members are looked up through the class at each use; the hot path uses these names.
_INFER = int(FrameType.INFER)
_MAX_IN_FLIGHT = 16_384  # requests accepted and unanswered, in whatever stage


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadedWorker:
    """Everything that exists once the model is loaded."""

    codec: Codec
    batcher: Batcher
    runner: Runner
    compute: ComputeThread
    pool: CodecPool
    metrics: WorkerMetrics
    log: WorkerLog
    resident: Resident


class Serving:
    """Serves requests of all attached gateways with one loaded model.

    Args:
        loaded: The model and what runs it.
        post: Hands an object to the I/O thread from any thread; comes back through `completed`.
        notify: Sends a notice to the supervisor.
    """

    def __init__(
        self,
        loaded: LoadedWorker,
        post: Callable[[Request], None],
        notify: Callable[[WorkerNotice], None],
    ) -> None:
        self._codec = loaded.codec
        self._batcher = loaded.batcher
        self._runner = loaded.runner
        self._compute = loaded.compute
        self._pool = loaded.pool
        self._metrics = loaded.metrics
        self._log = loaded.log
        self._resident = loaded.resident
        self._post = post
        self._notify = notify
        self._routes = Routes(loaded.codec)
        self._answers = Answers(loaded.codec)
        self._decode_ns = 0
        self._decoded = 0
        self._encode_ns = 0
        self._encoded = 0
        self._ceiling = 0
        self.draining = False
        self.running_inline = False
        self._show_ceiling()

    # --- frames ------------------------------------------------------------------------------------

    def received(self, link: GatewayLink, frames: list[Frame]) -> None:
        """Take in the frames of one link.

        Raises:
            ProtocolError: The gateway broke the protocol; the link must be closed.
        """
        now_ns = time.monotonic_ns()
        decoded = self._decoded
        for frame in frames:
            kind = frame.type
            if kind == _INFER:
                self._infer(link, frame, now_ns)
            elif kind == FrameType.CANCEL:
                request = link.requests.get(frame.id)
                if request is not None:  # else its answer is on its way already
                    self._cancel(request)
            elif kind == FrameType.PING:
                link.answered = True
            elif kind not in (FrameType.DRAIN, FrameType.TURN):
                raise ProtocolError(Cause.WORKER_PROTOCOL, f"frame type {kind} from a gateway")
        if self._decoded > decoded:
            self._decode_ns += time.monotonic_ns() - now_ns

    def lost(self, link: GatewayLink) -> None:
        """Cancel everything a dead link asked for."""
        for request in list(link.requests.values()):
            self._cancel(request)

    def attached(self, link: GatewayLink) -> None:
        """Tell a new gateway that this replica answers."""
        self.add_status(link, time.monotonic_ns())

    # --- work --------------------------------------------------------------------------------------

    def start_batches(self) -> bool:
        """Start what can run; return whether more could run at once after looking at the sockets."""
        batcher = self._batcher
        if batcher.running is not None:
            return False
        batch = batcher.take(time.monotonic_ns())
        if batcher.has_dropped:
            self.expire()
        if batch is None:
            return False
        self._observe_queue(batch)
        if not batch.table.runs_inline(batch.rows):
            self._compute.submit(batch)
            return False
        self.running_inline = True
        try:
            self._runner.run(batch, IO_LANE)
        finally:
            self.running_inline = False
        self.batch_done(batch)
        return bool(batcher.queue.count)

    def batch_done(self, batch: Batch) -> None:
        """Answer the requests of a finished batch."""
        self._batcher.finished(batch, time.monotonic_ns())
        large = batch.output_bytes > INLINE_JSON_BYTES  # some of its requests may be
        began_ns = time.monotonic_ns()
        encoded = self._encoded
        encode = self._codec.encode
        for request in batch.requests:
            decoded, outputs = request.decoded, request.outputs
            if (
                large
                or request.user_code
                or request.cancelled
                or request.error is not None
                or outputs is None
                or decoded is None
            ):
                self._ran(request)
                continue
            try:  # the common case, without a call more than needed
                meta, pieces = encode(decoded, outputs)
            except Exception as error:  # noqa: BLE001 - one request must not end the others
                self._answers.error(request, self._encode_error(request, error))
                continue
            self._encoded += 1  # its time is taken for the whole batch
            self._answers.result(request, meta, pieces)
        if self._encoded > encoded:
            self._encode_ns += time.monotonic_ns() - began_ns
        self._tell_people(batch)
        self._show_ceiling()

    def completed(self, request: Request) -> None:
        """Go on with a request that a codec thread has decoded or encoded."""
        self._pool.pending -= 1
        if request.stage is Stage.ENCODING:
            self._encoded_off_thread(request)
        elif request.cancelled:
            self._answers.gone(request)
        elif request.error is not None:
            self._answers.error(request, request.error)
        else:
            if request.decode_ns:
                self._decode_ns += request.decode_ns
                self._decoded += 1
            self._admit(request, time.monotonic_ns())

    def expire(self) -> None:
        """Answer what waits beyond its deadline."""
        for request in self._batcher.expired(time.monotonic_ns()):
            self._metrics.add(self._metrics.expired)
            error = RequestError(
                Cause.DEADLINE_EXCEEDED,
                "The request's deadline passed while it was queued; it did not run.",
            )
            self._answers.error(request, error)

    def give_up(self) -> None:
        """Refuse everything that still waits: the time to drain is over."""
        for request in self._batcher.give_up():
            self._answers.error(
                request,
                RequestError(Cause.DRAINING, "The replica is shutting down.", retry_after_s=1),
            )

    # --- once a turn -------------------------------------------------------------------------------

    def finish_turn(self, now_ns: int) -> None:
        """Write the counters that are kept per turn, and the gauges."""
        metrics = self._metrics
        if self._decoded:
            metrics.decode.observe(self._decode_ns * 1e-9 / self._decoded, self._decoded)
            self._decode_ns = self._decoded = 0
        if self._encoded:
            metrics.encode.observe(self._encode_ns * 1e-9 / self._encoded, self._encoded)
            self._encode_ns = self._encoded = 0
        queue = self._batcher.queue
        metrics.values[metrics.queue_rows] = queue.rows
        metrics.values[metrics.queue_oldest] = queue.oldest_ns / NS_PER_S
        self._resident.look(now_ns, idle=not self._answers.in_flight)

    def add_status(self, link: GatewayLink, now_ns: int) -> None:
        """Add a STATUS to what the link will send."""
        status = StatusMeta(self._batcher.queue.rows, len(link.requests), self._resident.bytes)
        self._answers.status(
            link, status, int(self._batcher.wait_us(now_ns)), draining=self.draining
        )

    @property
    def in_flight(self) -> int:
        """Requests received and not yet answered."""
        return self._answers.in_flight

    @property
    def next_deadline_ns(self) -> int:
        """When `expire` is due; 0 for not."""
        return self._batcher.next_deadline_ns

    @property
    def queued_rows(self) -> int:
        """Rows waiting."""
        return self._batcher.queue.rows

    # --- one request -------------------------------------------------------------------------------

    def _infer(self, link: GatewayLink, frame: Frame, now_ns: int) -> None:
        route = self._routes.known.get(frame.meta) or self._routes.learn(frame.meta)
        request = Request(
            link, frame.id, frame.request_id, route.meta, frame.flags, frame.clock, now_ns
        )
        if frame.id in link.requests:
            raise ProtocolError(Cause.WORKER_PROTOCOL, f"request {frame.id:#x} was sent twice")
        request.body = self._shared_body(link, frame) if frame.flags & SHARED else frame.body
        request.user_code = route.user_code
        link.requests[frame.id] = request
        self._answers.in_flight += 1
        if self._answers.in_flight > _MAX_IN_FLIGHT:
            self._answers.error(request, self._too_many(now_ns))
        elif frame.body_length > route.inline_bytes:
            self._pool.submit(self._decode_off_thread, request)
        else:
            self._decoded += 1  # its time is taken for all frames of a turn together
            try:
                decoded = self._codec.decode(route.meta, request.body, frame.request_id)
                refusal = self._batcher.admit(request, decoded, now_ns)
            except Exception as error:  # noqa: BLE001 - one request must not end the others
                refusal = self._decode_error(request, error)
            if refusal is not None:
                self._answers.error(request, refusal)

    def _shared_body(self, link: GatewayLink, frame: Frame) -> memoryview:
        offset = int.from_bytes(frame.body, "little")
        try:
            return link.arena.view(offset, frame.body_length)
        except ValueError as error:
            raise ProtocolError(Cause.WORKER_PROTOCOL, str(error)) from error

    def _decode_error(self, request: Request, error: Exception) -> RequestError:
        if isinstance(error, RequestError):
            self._log_own_code(request, error)
            return error
        self._log.failure("decoding failed unexpectedly", request.request_id, error)
        return RequestError(Cause.INTERNAL, "The request could not be read.")

    def _log_own_code(self, request: Request, error: RequestError) -> None:
        """Log what the model's own decode or encode raised; a ValueError of decode is the client's fault."""
        raised = error.__cause__
        if raised is None or (
            error.cause is Cause.DECODE_FAILED and isinstance(raised, ValueError)
        ):
            return
        self._log.failure(error.detail, request.request_id, raised)

    def _decode_off_thread(self, request: Request) -> None:
        if not request.cancelled:
            began_ns = time.monotonic_ns()
            try:
                request.decoded = self._codec.decode(request.meta, request.body, request.request_id)
            except Exception as error:  # noqa: BLE001 - one request must not end the others
                request.error = self._decode_error(request, error)
            request.decode_ns = time.monotonic_ns() - began_ns
        self._post(request)

    def _admit(self, request: Request, now_ns: int) -> None:
        decoded = request.decoded
        if decoded is None:
            raise RuntimeError(f"request {request.id:#x} was decoded to nothing")
        refusal = self._batcher.admit(request, decoded, now_ns)
        if refusal is not None:
            self._answers.error(request, refusal)

    def _cancel(self, request: Request) -> None:
        request.cancelled = True
        if self._batcher.cancel(request):
            self._metrics.add(self._metrics.cancelled_rows, request.rows)
            self._answers.gone(request)

    def _ran(self, request: Request) -> None:
        if request.cancelled:
            self._answers.gone(request)
        elif request.error is not None:
            self._answers.error(request, request.error)
        elif request.outputs is None or request.decoded is None:
            self._answers.error(request, RequestError(Cause.INTERNAL, "The model gave no answer."))
        elif request.user_code or _output_bytes(request) > INLINE_JSON_BYTES:
            request.advance(Stage.ENCODING)
            self._pool.submit(self._encode_off_thread, request)
        else:
            self._encode(request)
            self._encoded += 1  # its time is taken for the whole batch
            self._answer_encoded(request)

    def _encode(self, request: Request) -> None:
        try:
            if request.decoded is not None and request.outputs is not None:
                request.answer = self._codec.encode(request.decoded, request.outputs)
        except Exception as error:  # noqa: BLE001 - one request must not end the others
            request.error = self._encode_error(request, error)

    def _encode_error(self, request: Request, error: Exception) -> RequestError:
        if isinstance(error, RequestError):
            self._log_own_code(request, error)
            return error
        self._log.failure("encoding failed", request.request_id, error)
        return RequestError(
            Cause.ENCODE_FAILED, f"The answer could not be written: {describe(error)}"
        )

    def _encode_off_thread(self, request: Request) -> None:
        if not request.cancelled:
            began_ns = time.monotonic_ns()
            self._encode(request)
            request.encode_ns = time.monotonic_ns() - began_ns
        self._post(request)

    def _encoded_off_thread(self, request: Request) -> None:
        self._encode_ns += request.encode_ns
        self._encoded += 1
        if request.cancelled:
            self._answers.gone(request)
        else:
            self._answer_encoded(request)

    def _answer_encoded(self, request: Request) -> None:
        if request.error is not None or request.answer is None:
            self._answers.error(
                request, request.error or RequestError(Cause.INTERNAL, "The answer is missing.")
            )
            return
        meta, pieces = request.answer
        self._answers.result(request, meta, pieces)

    def _too_many(self, now_ns: int) -> RequestError:
        return RequestError(
            Cause.QUEUE_FULL,
            f"{_MAX_IN_FLIGHT} requests are in progress in this replica already.",
            retry_after_s=self._batcher.retry_after_s(now_ns),
        )

    def _observe_queue(self, batch: Batch) -> None:
        started_ns = batch.started_ns
        total_us = 0
        for request in batch.requests:
            waited_us = (started_ns - request.queued_ns) // NS_PER_US
            request.queue_us = min(waited_us, 0xFFFF_FFFF)
            total_us += waited_us
        count = len(batch.requests)
        self._metrics.queue.observe(total_us * 1e-6 / count, count)

    def _tell_people(self, batch: Batch) -> None:
        if batch.out_of_memory_rows:
            self._notify(
                WorkerNotice(
                    level="warning",
                    text=f"a call with {counted(batch.out_of_memory_rows, 'row')} ran out of memory; "
                    f"calls have at most {counted(self._batcher.ceiling_rows, 'row')} for now",
                )
            )
        if batch.outputs_do_not_follow:
            self._notify(
                WorkerNotice(
                    level="warning",
                    text=f"{batch.outputs_do_not_follow}: from now on every request runs alone",
                )
            )

    def _show_ceiling(self) -> None:
        ceiling = self._batcher.ceiling_rows
        if ceiling != self._ceiling:
            self._ceiling = ceiling
            self._metrics.values[self._metrics.ceiling_rows] = ceiling


def _output_bytes(request: Request) -> int:
    outputs = request.outputs or {}
    return sum(array.nbytes for array in outputs.values())
