"""The service over real socket pairs: bytes, backpressure, the arena, and links that end."""

import asyncio
import gc
import os
from pathlib import Path

import msgspec
import pytest

from tests.integration.fake_worker import OK, FakeWorker, make_service, run, until
from torchgate.clock import NS_PER_S
from torchgate.inference.channel import Channel
from torchgate.inference.service import InferenceService, Prediction
from torchgate.link.arena import THRESHOLD_BYTES
from torchgate.schema.messages import AttachReplica, LinkBroken
from torchgate.wire.frames import (
    MORE,
    REPLAY,
    SHARED,
    SOLO,
    FrameType,
    InferMeta,
    Protocol,
    ResultMeta,
)

META = msgspec.msgpack.encode(InferMeta(protocol=Protocol.PLAIN, content_type="application/json"))


class Asked:
    """A prediction and what became of it."""

    def __init__(self, service: InferenceService, chunks: list[bytes], name: str = "id-1") -> None:
        self.answers: list[tuple[ResultMeta, bytes, int, int]] = []
        self.prediction = Prediction(
            "m",
            META,
            chunks,
            sum(map(len, chunks)),
            name.encode(),
            service.now_ns() + 20 * NS_PER_S,
            lambda _p, meta, body, queue, compute: self.answers.append(
                (meta, body, queue, compute)
            ),
        )
        service.submit(self.prediction)

    @property
    def body(self) -> bytes:
        ((meta, body, _, _),) = self.answers
        assert meta.status == 200, body
        return body


def open_fds() -> int:
    gc.collect()  # what earlier tests left
    return len(list(Path("/proc/self/fd").iterdir()))


def arena_bytes(service: InferenceService) -> int:
    used = 0
    for replica in service._models["m"].replicas.values():
        assert isinstance(replica.link, Channel)
        used += replica.link._arena.used_bytes
    return used


def test_a_request_reaches_the_worker_byte_for_byte_and_its_answer_comes_back() -> None:
    async def main() -> None:
        service = make_service()
        worker = FakeWorker(service)
        await until(lambda: service.is_ready("m"))
        asked = Asked(service, [b'{"x":', b"[1,2]}"], "my-id")
        await until(lambda: worker.infers)
        (frame,) = worker.infers
        assert frame.request_id == b"my-id"
        assert frame.meta == META
        assert frame.body == b'{"x":[1,2]}'
        assert frame.flags == 0
        assert frame.clock == asked.prediction.deadline_ns
        assert frame.id >> 48 == 3
        worker.answer(frame, b"the answer")
        await until(lambda: asked.answers)
        assert asked.answers == [
            (ResultMeta(200, "application/json"), b"the answer", 7, 11),
        ]
        assert service.open_predictions == 0
        service.close()

    run(main)


@pytest.mark.parametrize("count", [7, 8, 16, 20])
def test_many_requests_go_in_groups_and_each_but_the_last_says_that_more_comes(count: int) -> None:
    async def main() -> None:
        service = make_service()
        worker = FakeWorker(service)
        await until(lambda: service.is_ready("m"))
        asked = [Asked(service, [b"%d" % i]) for i in range(count)]
        worker._readable()  # no other callback has run since
        early = worker.infers
        assert len(early) == count // 8 * 8
        assert [bool(frame.flags & MORE) for frame in early] == [
            i % 8 == 0 for i in range(1, len(early) + 1)
        ]
        await until(lambda: len(worker.infers) == count)
        await asyncio.sleep(0.01)
        # The last thing said is never that more comes: a request, or that the turn is over.
        said = [f for f in worker.frames if f.type in (FrameType.INFER, FrameType.TURN)]
        assert not said[-1].flags & MORE
        assert len(said) == count + (count % 8 == 0)
        for frame in worker.infers:
            worker.answer(frame, frame.body)
        await until(lambda: all(one.answers for one in asked))
        assert [one.body for one in asked] == [b"%d" % i for i in range(count)]
        service.close()

    run(main)


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_answers_may_arrive_in_any_pieces(piece: int) -> None:
    async def main() -> None:
        service = make_service()
        worker = FakeWorker(service)
        await until(lambda: service.is_ready("m"))
        asked = [Asked(service, [b"%d" % i]) for i in range(5)]
        await until(lambda: len(worker.infers) == 5)
        data = b"".join(worker.result_bytes(frame, frame.body * 9) for frame in worker.infers)
        for at in range(0, len(data), piece):
            worker.send(data[at : at + piece])
            if piece > 1 or at % 16 == 0:
                await asyncio.sleep(0)
        await until(lambda: all(one.answers for one in asked))
        assert [one.body for one in asked] == [b"%d" % i * 9 for i in range(5)]
        service.close()

    run(main)


def test_a_large_body_goes_through_the_arena_and_is_freed_with_its_answer() -> None:
    async def main() -> None:
        service = make_service()
        worker = FakeWorker(service)
        await until(lambda: service.is_ready("m"))
        chunks = [os.urandom(THRESHOLD_BYTES), os.urandom(1000)]
        asked = Asked(service, chunks)
        await until(lambda: worker.infers)
        (frame,) = worker.infers
        assert frame.flags & SHARED
        assert worker.body(frame) == b"".join(chunks)
        assert arena_bytes(service) > 0
        worker.answer(frame)
        await until(lambda: asked.answers)
        assert arena_bytes(service) == 0
        service.close()

    run(main)


def test_a_body_beyond_the_arena_takes_the_socket() -> None:
    async def main() -> None:
        service = make_service()
        worker = FakeWorker(service)
        await until(lambda: service.is_ready("m"))
        bodies = [os.urandom(3_000_000) for _ in range(3)]
        asked = [Asked(service, [body[:1_000_000], body[1_000_000:]]) for body in bodies]
        await until(lambda: len(worker.infers) == 3)
        assert [bool(frame.flags & SHARED) for frame in worker.infers] == [True, False, False]
        assert [worker.body(frame) for frame in worker.infers] == bodies
        for frame in worker.infers:
            worker.answer(frame)
        await until(lambda: all(one.answers for one in asked))
        assert arena_bytes(service) == 0
        service.close()

    run(main)


def test_a_worker_that_does_not_read_holds_nobody_up_and_gets_everything_later() -> None:
    async def main() -> None:
        service = make_service()
        worker = FakeWorker(service, reads=False)
        await until(lambda: service.is_ready("m"))
        asked = [Asked(service, [b"%05d" % i * 2000]) for i in range(400)]
        await asyncio.sleep(0)
        service.cancel(asked[7].prediction)
        worker.read()
        await until(lambda: len(worker.infers) == 400)
        assert [frame.body for frame in worker.infers] == [b"%05d" % i * 2000 for i in range(400)]
        cancels = [frame.id for frame in worker.frames if frame.type == FrameType.CANCEL]
        assert cancels == [asked[7].prediction.id]
        service.close()

    run(main)


def test_what_a_dead_worker_had_runs_on_another_with_the_same_bytes() -> None:
    async def main() -> None:
        service = make_service()
        dying = FakeWorker(service, 0)
        await until(lambda: service.is_ready("m"))
        large = os.urandom(THRESHOLD_BYTES + 5)
        asked = [Asked(service, [body]) for body in (b"small", large, b"executing")]
        await until(lambda: len(dying.infers) == 3)
        other = FakeWorker(service, 1)
        dying.close()
        await until(lambda: len(service._models["m"].ready) == 1)
        dying.lost(asked[2].prediction.id)
        await until(lambda: len(other.infers) == 3)
        assert [other.body(frame) for frame in other.infers] == [b"small", large, b"executing"]
        flags = [frame.flags & ~SHARED for frame in other.infers]
        assert flags == [REPLAY, REPLAY, SOLO | REPLAY]
        for frame in other.infers:
            other.answer(frame, b"ok")
        await until(lambda: all(one.answers for one in asked))
        assert {one.body for one in asked} == {b"ok"}
        assert arena_bytes(service) == 0
        service.close()

    run(main)


def test_an_answer_still_in_the_socket_counts_when_the_death_is_told_first() -> None:
    async def main() -> None:
        service = make_service()
        dying = FakeWorker(service, 0)
        await until(lambda: service.is_ready("m"))
        first, second = Asked(service, [b"1"]), Asked(service, [b"2"])
        await until(lambda: len(dying.infers) == 2)
        dying.answer(dying.infers[0], b"just in time")
        dying.close()
        dying.lost(first.prediction.id, second.prediction.id)
        assert first.body == b"just in time"
        other = FakeWorker(service, 1)
        await until(lambda: other.infers)
        other.answer(other.infers[0], b"again")
        await until(lambda: second.answers)
        assert second.body == b"again"
        assert len(first.answers) == 1
        service.close()

    run(main)


@pytest.mark.parametrize(
    "junk",
    [b"\xff" * 64, b"HTTP/1.1 200 OK\r\n" * 4, b"\x03" + bytes(31), OK * 40],
    ids=["ones", "http", "partial", "meta"],
)
def test_a_worker_that_writes_junk_loses_its_link_and_no_request(junk: bytes) -> None:
    async def main() -> None:
        service = make_service()
        mad = FakeWorker(service, 0)
        await until(lambda: service.is_ready("m"))
        asked = Asked(service, [b"1"])
        await until(lambda: mad.infers)
        mad.send(junk)
        await until(lambda: not service.is_ready("m"))
        mad.lost()
        other = FakeWorker(service, 1)
        await until(lambda: other.infers)
        other.answer(other.infers[0], b"ok")
        await until(lambda: asked.answers)
        assert asked.body == b"ok"
        service.close()

    run(main)


def test_answers_to_unknown_ids_are_counted_and_ignored() -> None:
    async def main() -> None:
        service = make_service()
        worker = FakeWorker(service)
        await until(lambda: service.is_ready("m"))
        asked = Asked(service, [b"1"])
        await until(lambda: worker.infers)
        worker.answer(worker.infers[0])
        worker.answer(worker.infers[0])
        await until(lambda: service.statistics().unknown_results == 1)
        assert len(asked.answers) == 1
        service.close()

    run(main)


def test_replicas_that_come_and_go_leave_no_descriptor_behind() -> None:
    async def main() -> None:
        service = make_service()
        before = open_fds()
        for incarnation in range(1, 30):
            worker = FakeWorker(service, 0, incarnation)
            await until(lambda: service.is_ready("m"))
            asked = Asked(service, [b"x" * (THRESHOLD_BYTES + 1)])
            await until(lambda worker=worker: worker.infers)
            worker.answer(worker.infers[0])
            await until(lambda asked=asked: asked.answers)
            worker.close()
            worker.lost()
            await until(lambda: not service.is_ready("m"))
        assert open_fds() == before
        assert service._models["m"].replicas == {}
        service.close()

    run(main)


def test_a_replica_of_an_unknown_model_is_refused_and_its_descriptors_closed() -> None:
    async def main() -> None:
        service = make_service()
        before = open_fds()
        ours, arena = os.pipe()
        with pytest.raises(ValueError, match="not configured"):
            service.attach(
                AttachReplica(model="nobody", replica=0, incarnation=1, fds=2), ours, arena
            )
        assert open_fds() == before

    run(main)


def test_readiness_says_what_is_missing() -> None:
    async def main() -> None:
        service = make_service()
        assert service.readiness_of("m").state == "starting"
        worker = FakeWorker(service, 0)
        await until(lambda: service.is_ready("m"))
        (model,) = service.readiness()
        assert (model.state, model.ready, model.wanted) == ("ready", 1, 2)
        assert model.reason == "replica 1 is starting"
        worker.close()
        worker.lost()
        model = service.readiness_of("m")
        assert model.state == "unavailable"
        assert "replica 0 is lost" in model.reason
        service.close()

    run(main)


def test_a_model_that_is_not_served_is_said_so() -> None:
    async def main() -> None:
        service = make_service()
        answers: list[ResultMeta] = []
        prediction = Prediction(
            "other", META, [], 0, b"id", 0, lambda _p, meta, *_rest: answers.append(meta)
        )
        service.submit(prediction)
        assert [meta.status for meta in answers] == [404]

    run(main)


def test_a_link_that_ends_without_a_death_is_told_to_the_supervisor() -> None:
    async def main() -> None:
        told: list[LinkBroken] = []
        service = make_service(told)
        worker = FakeWorker(service, 1, 4)
        await until(lambda: service.is_ready("m"))
        worker.send(b"\xff" * 64)
        await until(lambda: not service.is_ready("m"))
        service.tick(service.now_ns())
        assert told == []
        service.tick(service.now_ns() + 3 * NS_PER_S)
        (message,) = told
        assert (message.model, message.replica, message.incarnation) == ("m", 1, 4)
        assert "absurd" in message.detail
        service.close()

    run(main)
