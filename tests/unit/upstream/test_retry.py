"""The budget of retries, and when one is safe."""

import pytest

from torchgate.clock import NS_PER_S
from torchgate.errors import Cause
from torchgate.schema.pools import RetryConfig
from torchgate.upstream.attempt import TRANSITIONS as ATTEMPT
from torchgate.upstream.attempt import AttemptState
from torchgate.upstream.connection import TRANSITIONS as CONNECTION
from torchgate.upstream.connection import ConnectionState
from torchgate.upstream.pool_transfer import TRANSITIONS as TRANSFER
from torchgate.upstream.pool_transfer import TransferState
from torchgate.upstream.retry import FINAL, WINDOW_NS, RetryBudget, is_safe

S = NS_PER_S


def spend(budget, now_ns, most=1000):
    return sum(budget.take(now_ns) for _ in range(most))


def test_a_share_of_the_requests_can_be_spent():
    budget = RetryBudget(RetryConfig(budget=0.2, budget_min=0), 0)
    budget.requests += 100
    assert spend(budget, 0) == 20
    budget.requests += 50
    assert spend(budget, 1) == 10
    assert budget.refused == 2000 - 30


def test_a_quiet_pool_has_a_few_a_second():
    budget = RetryBudget(RetryConfig(budget=0.2, budget_min=3), 0)
    assert spend(budget, 0) == 3
    assert spend(budget, S // 2) == 1
    assert spend(budget, 60 * S) == 3  # not saved up


def test_old_requests_are_no_credit():
    budget = RetryBudget(RetryConfig(budget=0.2, budget_min=0), 0)
    budget.requests += 1000
    assert spend(budget, 3 * WINDOW_NS) == 0


def test_what_was_spent_counts_over_the_turn_of_the_window():
    budget = RetryBudget(RetryConfig(budget=0.2, budget_min=0), 0)
    budget.requests += 100
    assert spend(budget, WINDOW_NS - 1) == 20
    assert spend(budget, WINDOW_NS + 1) == 0


@pytest.mark.pain("N37")
@pytest.mark.parametrize("cause", list(Cause))
def test_what_must_be_done_once_is_repeated_only_when_nothing_was_sent(cause):
    def safe(*, idempotent, sent, answered=False, at_hand=True):
        return is_safe(cause, idempotent=idempotent, sent=sent, answered=answered, at_hand=at_hand)

    assert not safe(idempotent=False, sent=True)
    assert safe(idempotent=False, sent=False) is (cause not in FINAL)
    assert safe(idempotent=True, sent=True) is (cause not in FINAL)
    assert not safe(idempotent=True, sent=True, at_hand=False)
    assert not safe(idempotent=True, sent=True, answered=True)


@pytest.mark.parametrize(
    ("table", "states"),
    [(ATTEMPT, AttemptState), (CONNECTION, ConnectionState), (TRANSFER, TransferState)],
)
def test_every_state_is_drawn(table, states):
    assert set(table) == set(states)
