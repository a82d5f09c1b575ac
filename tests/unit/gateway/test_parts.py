"""Small parts of the gateway without a socket: snapshot, questions, heads of answers, descriptors, exchange."""

import pytest

from torchgate.clock import FakeClock
from torchgate.errors import Cause, RequestError
from torchgate.gateway.exchange import TRANSITIONS, Exchange, ExchangeState
from torchgate.gateway.questions import MAX_OPEN, Questions
from torchgate.gateway.respond import HeadWriter, field_lines, http_date
from torchgate.gateway.snapshot import first_snapshot
from torchgate.link.control import LinkClosed
from torchgate.schema.config import ListenerConfig, ModelConfig
from torchgate.schema.messages import ConfigureGateway, ModelReady, TextReply
from torchgate.schema.signature import Batching, Signature

pytestmark = pytest.mark.interpreted  # its stand-ins are no compiled classes

SIGNATURE = Signature(
    name="b",
    platform="pytorch_eager",
    inputs=(),
    outputs=(),
    batching=Batching(merge=False, reason="a test", max_rows=1),
)


class Sink:
    def __init__(self):
        self.answers = []

    def answer(self, exchange, content_type, body, headers):
        self.answers.append((exchange.status, content_type, body, tuple(headers)))


def exchange():
    sink = Sink()
    return sink, Exchange(sink, b"GET", b"/", (), b"id", 0)


class TestExchange:
    def test_it_is_answered_once(self):
        sink, one = exchange()
        one.respond(200, "text/plain", b"a")
        with pytest.raises(RuntimeError, match="answered twice"):
            one.respond(200, "text/plain", b"b")
        assert len(sink.answers) == 1

    def test_cancel_tells_the_handler_once_and_drops_a_late_answer(self):
        sink, one = exchange()
        told = []
        one.on_cancel = lambda: told.append(1)
        assert one.cancel()
        assert not one.cancel()
        one.respond(200, "text/plain", b"late")
        one.respond_error(RequestError(Cause.INTERNAL, "late"))
        assert (told, sink.answers) == ([1], [])

    def test_an_answered_exchange_can_not_be_cancelled(self):
        _sink, one = exchange()
        told = []
        one.on_cancel = lambda: told.append(1)
        one.respond(200, "text/plain", b"a")
        assert not one.cancel()
        assert told == []

    def test_errors_take_the_form_of_the_route_and_say_when_to_come_again(self):
        sink, one = exchange()
        one.oip = True
        one.respond_error(RequestError(Cause.QUEUE_FULL, "Full.", retry_after_s=3))
        status, content_type, body, headers = sink.answers[0]
        assert (status, content_type) == (503, "application/json")
        assert b'"error"' in body
        assert headers == ((b"retry-after", b"3"),)

    def test_every_state_is_in_the_table(self):
        assert set(TRANSITIONS) == set(ExchangeState)


class TestSnapshot:
    def test_a_change_shares_what_did_not_change(self):
        models = tuple(ModelConfig(name=name, target="t.py:t") for name in "ab")
        configure = ConfigureGateway(
            gateway=1,
            listeners=(ListenerConfig(),),
            models=models,
            access_log="off",
            started_unix_s=1.0,
        )
        old = first_snapshot(configure)
        ready = ModelReady(
            model="b", replica=0, incarnation=1, signature=SIGNATURE, load_s=1.0,
            row_us=2.0, batch_us={1: 2.0},
        )  # fmt: skip
        new = old.with_ready(ready)
        assert new.version == old.version + 1
        assert new.models["a"] is old.models["a"]
        assert new.models["b"].signature == ready.signature
        assert old.models["b"].signature is None
        assert list(new.models) == ["a", "b"]
        assert new.with_ready(ready) is new


class TestQuestions:
    def make(self, send=lambda message: None):
        clock = FakeClock()
        return clock, Questions(send, clock)

    def test_a_reply_reaches_who_asked_and_only_once(self):
        sent, replies = [], []
        _clock, questions = self.make(sent.append)
        questions.ask("metrics", "", replies.append)
        reply = TextReply(id=sent[0].id, ok=True, text="x")
        questions.answered(reply)
        questions.answered(reply)
        assert replies == [reply]

    def test_silence_is_answered_after_two_seconds(self):
        replies = []
        clock, questions = self.make()
        questions.ask("metrics", "", replies.append)
        clock.advance(1.9)
        questions.tick(clock.now_ns())
        assert replies == []
        clock.advance(0.2)
        questions.tick(clock.now_ns())
        assert [reply.ok for reply in replies] == [False]

    def test_too_many_and_a_supervisor_that_is_gone_are_answered_at_once(self):
        replies = []
        _clock, questions = self.make()
        for _ in range(MAX_OPEN + 1):
            questions.ask("metrics", "", replies.append)
        assert len(replies) == 1

        def gone(message):
            raise LinkClosed

        _clock, questions = self.make(gone)
        questions.ask("metrics", "", replies.append)
        assert [reply.ok for reply in replies] == [False, False]


class TestHeads:
    def test_the_date_changes_with_the_second(self):
        heads = HeadWriter(784111777)
        assert b"date: Sun, 06 Nov 1994 08:49:37 GMT\r\n" in heads.start(200, "text/plain")
        heads.tick(784111777.9)
        assert b"08:49:37" in heads.start(200, "text/plain")
        heads.tick(784111778.0)
        assert b"08:49:38" in heads.start(200, "text/plain")

    def test_dates_are_as_rfc_9110_writes_them(self):
        assert http_date(0) == b"Thu, 01 Jan 1970 00:00:00 GMT"

    @pytest.mark.parametrize("value", [b"a\r\nx: y", b"a\nb", b"a\0b"])
    def test_a_value_can_not_break_out_of_its_line(self, value):
        with pytest.raises(ValueError, match="holds CR, LF or NUL"):
            field_lines(((b"location", value),))
        with pytest.raises(ValueError, match="holds CR, LF or NUL"):
            HeadWriter(0).start(200, value)
