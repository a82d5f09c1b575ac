"""Waiting for the rest of what a gateway is just sending, and not for ever."""

from torchgate.worker.hold import HOLD_NS, Hold

NOW_NS = 5_000_000_000


class Gateway:
    def __init__(self, *, more: bool) -> None:
        self.more = more


def test_nothing_waits_when_no_gateway_is_in_the_middle_of_a_turn() -> None:
    hold = Hold()
    assert not hold.holds([], NOW_NS)
    assert not hold.holds([Gateway(more=False), Gateway(more=False)], NOW_NS)
    assert hold.until_ns == 0


def test_a_batch_waits_until_the_turn_is_over() -> None:
    hold, gateway, other = Hold(), Gateway(more=True), Gateway(more=False)
    assert hold.holds([other, gateway], NOW_NS)
    assert hold.holds([other, gateway], NOW_NS + HOLD_NS // 2)
    gateway.more = False
    assert not hold.holds([other, gateway], NOW_NS + HOLD_NS // 2)
    assert hold.until_ns == 0


def test_a_gateway_that_is_stopped_in_its_turn_holds_nobody_up_for_long() -> None:
    hold, gateway = Hold(), Gateway(more=True)
    assert hold.holds([gateway], NOW_NS)
    assert hold.until_ns == NOW_NS + HOLD_NS
    assert not hold.holds([gateway], NOW_NS + HOLD_NS)
    assert not hold.holds([gateway], NOW_NS + HOLD_NS + 1)  # nor does it begin anew
    gateway.more = True  # it goes on
    assert hold.holds([gateway], NOW_NS + HOLD_NS + 2)


def test_gateways_that_take_turns_hold_a_batch_no_longer_than_one_may() -> None:
    hold, one, other = Hold(), Gateway(more=True), Gateway(more=False)
    assert hold.holds([one, other], NOW_NS)
    one.more, other.more = False, True
    assert hold.holds([one, other], NOW_NS + HOLD_NS - 1)
    assert not hold.holds([one, other], NOW_NS + HOLD_NS)
