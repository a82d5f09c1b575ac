"""The life of one model's predictions in this gateway: who runs them, and again when a worker dies.

Decisions only: events come in as calls with the time, what is to be done goes out through the replicas' links
and the predictions' answers. No socket, no clock of its own, no loop; ``tests/playbook/`` plays it by hand.

What holds at all times:

- an open prediction is in exactly one place: parked, in flight at a replica (SENT or HELD), or in the SOLO lane;
- a prediction is answered once, and never after it was cancelled;
- at most one prediction of the SOLO lane is with a worker;
- work that was accepted is not refused because its worker died: bounds apply at the door only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from torchgate.clock import NS_PER_MS, NS_PER_S
from torchgate.errors import Cause, ProtocolError, RequestError
from torchgate.inference.admission import (
    OUTSTANDING_SLACK,
    PARKED_BYTES,
    Random,
    admit,
    choose,
)
from torchgate.inference.answers import Heads, crashed, error_answer, overdue
from torchgate.inference.availability import Availability
from torchgate.inference.deadlines import Deadlines
from torchgate.inference.meters import ModelMeters
from torchgate.inference.prediction import Prediction, PredictionState
from torchgate.inference.replica import LinkEvent, LinkState, Replica
from torchgate.schema.config import ModelConfig
from torchgate.schema.messages import ExitCause, ReplicaChanged, ReplicaState
from torchgate.schema.words import counted
from torchgate.wire.frames import (
    DRAINING,
    READY,
    REPLAY,
    SOLO,
    Frame,
    FrameType,
    ResultMeta,
)

GRACE_NS = 50 * NS_PER_MS  # past its deadline the worker's own answer should win
VERDICT_NS = 2 * NS_PER_S  # wait for the supervisor to say what a dead worker was running
MAX_KILLS = 2  # a prediction that has ended so many workers is answered, not run again
MAX_KILLS_FROM_OUTSIDE = 3  # the same when the last one was ended by a SIGKILL or the like

_NEW, _SENT, _DONE = PredictionState.NEW, PredictionState.SENT, PredictionState.DONE
_RESULT, _STATUS, _DRAIN = int(FrameType.RESULT), int(FrameType.STATUS), int(FrameType.DRAIN)
_MASK32 = 0xFFFF_FFFF
_REFUSALS = frozenset({Cause.QUEUE_FULL, Cause.DEADLINE_UNREACHABLE, Cause.MODEL_UNAVAILABLE})


class Dispatcher:
    """All predictions of one model in this gateway.

    Args:
        config: The model.
        meters: Its counters.
        next_id: Gives each prediction its number.
        random: ``randrange``, for the choice of two.
        on_broken: Told of a replica whose link has ended although its process seems to live.
    """

    def __init__(
        self,
        config: ModelConfig,
        meters: ModelMeters,
        next_id: Callable[[], int],
        random: Random,
        on_broken: Callable[[Replica], None],
    ) -> None:
        self.config = config
        self._meters = meters
        self._next_id = next_id
        self._random = random
        self._on_broken = on_broken
        self._max_in_flight = config.queue_rows + OUTSTANDING_SLACK
        self.replicas: dict[tuple[int, int], Replica] = {}
        self.availability = Availability(config.name, config.replicas)
        self.ready: list[Replica] = []
        self.open: dict[int, Prediction] = {}  # in order of submission
        self.parked: dict[int, Prediction] = {}
        self.parked_bytes = 0
        self.suspects: dict[int, Prediction] = {}  # the SOLO lane, waiting
        self.solo: Prediction | None = None  # the one of it that is with a worker
        self.unknown_results = 0
        self._deadlines = Deadlines()
        self._severed: list[Replica] = []
        self._heads = Heads()

    # --- requests -----------------------------------------------------------------------------

    def submit(self, prediction: Prediction, now_ns: int) -> None:
        """Take a prediction: it is sent, parked or answered at once."""
        prediction.id = self._next_id()
        prediction.admitted_ns = now_ns
        ready = self.ready
        if not ready:
            self._park_new(prediction, now_ns)
            return
        replica = ready[0] if len(ready) == 1 else choose(ready, now_ns, self._random)
        if (
            replica.wait_us
            or len(replica.in_flight) >= self._max_in_flight
            or prediction.deadline_ns - now_ns < replica.single_us * 1000
        ):
            try:
                best = admit(ready, prediction, now_ns, self._max_in_flight)
            except RequestError as error:
                self._refuse(prediction, error, now_ns)
                return
            if len(replica.in_flight) >= self._max_in_flight:
                replica = best
        self.open[prediction.id] = prediction
        self._deadlines.track(prediction, len(self.open))
        self._send(prediction, replica, 0)

    def cancel(self, prediction: Prediction) -> None:
        """Forget a prediction whose client has gone; no answer is given. Nothing happens if it is done."""
        if prediction.state is _DONE or prediction.id not in self.open:
            return
        self._meters.cancelled()
        self._withdraw(prediction)

    def tick(self, now_ns: int) -> None:
        """Answer what is overdue; stop waiting for verdicts that don't come."""
        if self.open:
            for prediction in self._deadlines.overdue(self.open.values(), now_ns - GRACE_NS):
                self._expire(prediction, now_ns)
        for replica in [r for r in self._severed if now_ns - r.cut_ns >= VERDICT_NS]:
            # Nobody says that a process died: then nothing was killed, and nothing is suspect.
            self._on_broken(replica)
            self._settle(replica, (), now_ns)

    # --- replicas -----------------------------------------------------------------------------

    def attach(self, replica: Replica) -> None:
        """A replica process was started; its link is open."""
        self.replicas[replica.number, replica.incarnation] = replica
        self.availability.started(replica.number)

    def on_loaded(
        self, number: int, incarnation: int, row_us: float, batch_us: dict[int, float], now_ns: int
    ) -> None:
        """The supervisor says that this incarnation is loaded and warmed."""
        replica = self.replicas.get((number, incarnation))
        if replica is None or not replica.is_linked:
            return
        self.availability.loaded(number)
        replica.measure(row_us, batch_us)
        self._advance(replica, LinkEvent.LOADED, now_ns)
        if replica.state is LinkState.LOADED:
            replica.link.ping()

    def on_changed(self, message: ReplicaChanged, now_ns: int) -> None:
        """The supervisor says that a replica changed state."""
        number, state = message.replica, message.state
        replica = self.replicas.get((number, message.incarnation))
        if state is ReplicaState.LOST:
            self._on_lost(replica, message, now_ns)
        elif replica is not None and replica.is_linked:
            if state is ReplicaState.UNRESPONSIVE:
                self._advance(replica, LinkEvent.UNRESPONSIVE, now_ns)
            elif state is ReplicaState.READY:
                self._advance(replica, LinkEvent.LOADED, now_ns)
                if replica.state is LinkState.LOADED:
                    replica.link.ping()
        self.availability.changed(message, now_ns)
        self._refuse_parked(now_ns)

    def on_frames(self, replica: Replica, frames: Sequence[Frame], now_ns: int) -> None:
        """Frames arrived on the link of ``replica``.

        Raises:
            ProtocolError: One makes no sense; what came before it has been dealt with.
        """
        for frame in frames:
            if frame.type == _RESULT:
                self._on_result(replica, frame, now_ns)
            elif frame.type == _STATUS:
                replica.report(frame.clock, now_ns)
                event = LinkEvent.ANSWERED if frame.flags & READY else LinkEvent.UNREADY
                if frame.flags & DRAINING:
                    event = LinkEvent.DRAIN
                if event is not LinkEvent.ANSWERED or replica.state is not LinkState.READY:
                    self._advance(replica, event, now_ns)
            elif frame.type == _DRAIN:
                self._advance(replica, LinkEvent.DRAIN, now_ns)
            else:
                raise ProtocolError(
                    Cause.WORKER_PROTOCOL, f"frame of type {frame.type} from a worker"
                )

    def on_cut(self, replica: Replica, reason: str, now_ns: int) -> None:
        """The link of ``replica`` has ended; its requests wait for the supervisor's verdict."""
        if not replica.is_linked:
            return
        replica.cut_ns = now_ns
        replica.cut_reason = reason
        self._advance(replica, LinkEvent.CUT, now_ns)
        replica.link.close()
        self._severed.append(replica)
        for prediction in replica.in_flight.values():
            prediction.offset = -1  # the arena is gone with the link
            if prediction.state is not _DONE:
                prediction.advance(PredictionState.HELD)

    # --- a worker's death ---------------------------------------------------------------------

    def _on_lost(self, replica: Replica | None, message: ReplicaChanged, now_ns: int) -> None:
        if replica is not None:
            self.on_cut(replica, "the process is gone", now_ns)
            # A kill from outside strikes the innocent too, with bad luck twice; a request may also have asked for it.
            is_from_outside = message.cause is ExitCause.SIGNAL and not message.faulted
            self._settle(
                replica,
                self._suspected(replica, message),
                now_ns,
                MAX_KILLS_FROM_OUTSIDE if is_from_outside else MAX_KILLS,
            )
            return
        # The verdict came after we stopped waiting for it; the requests run elsewhere, or wait to.
        for id_ in () if message.cause is ExitCause.LINK_BROKEN else message.executing:
            prediction = self.open.get(id_)
            if prediction is None:
                continue
            prediction.kills += 1
            if prediction.state is PredictionState.PARKED:
                self._unpark(prediction)
                self._suspect(prediction)
        self._next_solo(now_ns)

    def _suspected(self, replica: Replica, message: ReplicaChanged) -> Collection[int]:
        """Return the ids of what may have ended a worker."""
        if message.cause is ExitCause.LINK_BROKEN:
            return ()  # not killed by what it was running
        if message.executing or not message.faulted:
            return message.executing
        # It failed outside of the model and of hooks, while it read or wrote a request, and can't say which. Not
        # to suspect any would let the culprit end one worker after another until its deadline.
        if self.solo is not None and self.solo.replica is replica:
            return (self.solo.id,)
        return tuple(replica.in_flight)

    def _settle(
        self,
        replica: Replica,
        executing: Collection[int],
        now_ns: int,
        max_kills: int = MAX_KILLS,
    ) -> None:
        """Deal with what a dead worker had: suspects to the SOLO lane, the others on at once."""
        self._severed.remove(replica)
        replica.advance(LinkEvent.SETTLED)
        del self.replicas[replica.number, replica.incarnation]
        suspects = frozenset(executing)
        orphans = list(replica.in_flight.values())
        replica.in_flight.clear()
        if self.solo is not None and self.solo.replica is replica:
            self.solo = None
        for prediction in orphans:
            if prediction.state is _DONE:
                continue
            prediction.replica = None
            if prediction.id in suspects:
                prediction.kills += 1
            if prediction.kills >= max_kills:
                self._answer_error(prediction, crashed(prediction), now_ns)
            elif prediction.kills:
                self._suspect(prediction)
            else:
                self._place(prediction, now_ns)
        self._next_solo(now_ns)

    def _suspect(self, prediction: Prediction) -> None:
        prediction.advance(PredictionState.SUSPECT)
        self.suspects[prediction.id] = prediction

    def _next_solo(self, now_ns: int) -> None:
        if self.solo is not None or not self.suspects or not self.ready:
            return
        prediction = self.suspects.pop(next(iter(self.suspects)))
        self.solo = prediction
        self._meters.replayed()
        self._send(prediction, choose(self.ready, now_ns, self._random), SOLO | REPLAY)

    def _place(self, prediction: Prediction, now_ns: int) -> None:
        """Run again what a worker did not get to, now or when a replica is ready."""
        if self.ready:
            self._meters.replayed()
            self._send(prediction, choose(self.ready, now_ns, self._random), REPLAY)
            return
        error = self.availability.refusal(now_ns)
        if error is not None:
            self._refuse(prediction, error, now_ns)
        else:
            self._park(prediction)

    # --- parking ------------------------------------------------------------------------------

    def _park_new(self, prediction: Prediction, now_ns: int) -> None:
        error = self.availability.refusal(now_ns)
        if error is None and (
            len(self.parked) >= self.config.queue_rows
            or self.parked_bytes + prediction.size > PARKED_BYTES
        ):
            error = RequestError(
                Cause.QUEUE_FULL,
                f"No replica of model {self.config.name!r} is ready; the queue "
                f"for one holds {counted(len(self.parked), 'request')} already.",
                retry_after_s=1,
            )
        if error is not None:
            self._refuse(prediction, error, now_ns)
            return
        self.open[prediction.id] = prediction
        self._deadlines.track(prediction, len(self.open))
        self._park(prediction)

    def _park(self, prediction: Prediction) -> None:
        prediction.advance(PredictionState.PARKED)
        self.parked[prediction.id] = prediction
        self.parked_bytes += prediction.size

    def _unpark(self, prediction: Prediction) -> None:
        del self.parked[prediction.id]
        self.parked_bytes -= prediction.size

    def _serve_parked(self, now_ns: int) -> None:
        """A replica has become ready."""
        while self.parked and self.ready:
            prediction = self.parked[next(iter(self.parked))]
            self._unpark(prediction)
            is_replay = prediction.sends > 0
            if is_replay:
                self._meters.replayed()
            replica = choose(self.ready, now_ns, self._random)
            self._send(prediction, replica, REPLAY if is_replay else 0)

    def _refuse_parked(self, now_ns: int) -> None:
        if self.ready or not (self.parked or self.suspects):
            return
        error = self.availability.refusal(now_ns)
        if error is None:
            return
        for prediction in [*self.parked.values(), *self.suspects.values()]:
            self._withdraw_place(prediction)
            self._refuse(prediction, error, now_ns)

    # --- sending and answering ----------------------------------------------------------------

    def _send(self, prediction: Prediction, replica: Replica, flags: int) -> None:
        if prediction.state is _NEW:
            prediction.state = _SENT
        else:
            prediction.advance(_SENT)
        prediction.replica = replica
        prediction.sends += 1
        replica.in_flight[prediction.id] = prediction
        replica.since_status += 1
        replica.link.infer(prediction, flags)

    def _on_result(self, replica: Replica, frame: Frame, now_ns: int) -> None:
        meta = self._heads.known.get(frame.meta) or self._heads.decode(frame.meta)
        prediction = replica.in_flight.pop(frame.id, None)
        if prediction is None:
            self.unknown_results += 1
            return
        if prediction.offset >= 0:
            replica.link.release(prediction)
        if prediction.state is not _DONE:
            if meta.cause == Cause.DRAINING:
                self._give_back(prediction, replica, now_ns)
            else:
                self._answer(prediction, meta, frame, now_ns)
        if prediction is self.solo:
            self.solo = None
            self._next_solo(now_ns)

    def _answer(self, prediction: Prediction, meta: ResultMeta, frame: Frame, now_ns: int) -> None:
        del self.open[prediction.id]
        prediction.state = _DONE  # from SENT, always
        prediction.chunks = []
        elapsed_ns = now_ns - prediction.admitted_ns
        if meta.status == 200:
            self._meters.succeeded(elapsed_ns)
        else:
            self._meters.failed(elapsed_ns)
            if meta.cause in _REFUSALS:
                self._meters.rejected(meta.cause)
        prediction.answer(prediction, meta, frame.body, frame.clock >> 32, frame.clock & _MASK32)

    def _give_back(self, prediction: Prediction, replica: Replica, now_ns: int) -> None:
        """The worker drains and has not run it: another does."""
        self._advance(replica, LinkEvent.DRAIN, now_ns)
        prediction.replica = None
        if prediction.kills:
            self._suspect(prediction)
        else:
            self._place(prediction, now_ns)

    def _expire(self, prediction: Prediction, now_ns: int) -> None:
        error = overdue(prediction, was_sent=prediction.state is _SENT)
        self._withdraw(prediction)
        self._deliver_error(prediction, error, now_ns)

    def _withdraw(self, prediction: Prediction) -> None:
        """Take an open prediction out of wherever it is; its worker need not run it."""
        was_sent = prediction.state is _SENT
        self._withdraw_place(prediction)
        self._finish(prediction)
        if was_sent and prediction.replica is not None:
            # It stays in that replica's table: the worker answers it all the same.
            prediction.replica.link.cancel(prediction.id)

    def _withdraw_place(self, prediction: Prediction) -> None:
        if prediction.state is PredictionState.PARKED:
            self._unpark(prediction)
        elif prediction.state is PredictionState.SUSPECT:
            del self.suspects[prediction.id]

    def _refuse(self, prediction: Prediction, error: RequestError, now_ns: int) -> None:
        self._meters.rejected(error.cause)
        self._answer_error(prediction, error, now_ns)

    def _answer_error(self, prediction: Prediction, error: RequestError, now_ns: int) -> None:
        self._finish(prediction)
        self._deliver_error(prediction, error, now_ns)

    def _finish(self, prediction: Prediction) -> None:
        self.open.pop(prediction.id, None)
        prediction.advance(_DONE)
        prediction.chunks = []

    def _deliver_error(self, prediction: Prediction, error: RequestError, now_ns: int) -> None:
        self._meters.failed(now_ns - prediction.admitted_ns)
        meta, body = error_answer(error, prediction.meta, prediction.request_id)
        prediction.answer(prediction, meta, body, 0, 0)

    # --- states -------------------------------------------------------------------------------

    def _advance(self, replica: Replica, event: LinkEvent, now_ns: int) -> None:
        if not replica.advance(event):
            return
        if replica in self.ready:
            self.ready.remove(replica)
        if replica.state is LinkState.READY:
            self.ready.append(replica)
            self._serve_parked(now_ns)
            self._next_solo(now_ns)

    def gauges(self, unix_s: float) -> None:
        """Write the gauges."""
        waiting = len(self.parked) + len(self.suspects)
        self._meters.gauges(len(self.open), waiting, unix_s)
