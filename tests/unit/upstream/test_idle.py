"""Learning how long an endpoint keeps idle connections, and not from what is something else."""

from torchgate.clock import NS_PER_S
from torchgate.upstream.idle import FORGET_NS, LEAST_NS, SHARE, IdleTime

S = NS_PER_S


def test_the_first_closing_teaches():
    idle = IdleTime()
    assert idle.closed(5 * S, 100 * S, 0)
    assert idle.use_ns == int(5 * S * SHARE)


def test_a_shorter_time_replaces_a_longer_one_and_not_the_other_way_round():
    idle = IdleTime()
    idle.closed(10 * S, 100 * S, 0)
    assert idle.closed(5 * S, 200 * S, 0)
    assert not idle.closed(8 * S, 300 * S, 0)
    assert idle.use_ns == int(5 * S * SHARE)


def test_a_closing_right_after_an_answer_teaches_nothing():
    idle = IdleTime()
    assert not idle.closed(LEAST_NS - 1, 100 * S, 0)
    assert idle.use_ns == 0


def test_a_closing_while_older_connections_live_on_teaches_nothing():
    idle = IdleTime()
    assert not idle.closed(2 * S, 100 * S, oldest_ns=30 * S)
    assert idle.use_ns == 0


def test_a_restart_closes_all_ages_at_once_and_teaches_nothing():
    idle = IdleTime()
    for number, age in enumerate((30 * S, 7 * S, 2 * S, 12 * S)):
        idle.closed(age, 100 * S + number, 0)
    assert idle.use_ns == 0


def test_a_restart_does_not_undo_what_was_known():
    idle = IdleTime()
    idle.closed(5 * S, 100 * S, 0)
    idle.closed(3 * S, 200 * S, 0)
    idle.closed(1 * S, 200 * S + 1, 0)
    assert idle.use_ns == int(5 * S * SHARE)


def test_connections_of_one_age_closed_together_are_no_restart():
    idle = IdleTime()
    idle.closed(5 * S, 100 * S, 0)
    idle.closed(5 * S, 100 * S + 1, 0)
    assert idle.use_ns == int(5 * S * SHARE)


def test_what_is_told_counts_when_it_is_shorter():
    idle = IdleTime()
    idle.told(5)
    assert idle.use_ns == int(5 * S * SHARE)
    idle.told(60)
    assert idle.use_ns == int(5 * S * SHARE)


def test_what_is_old_is_forgotten():
    idle = IdleTime()
    idle.closed(5 * S, 100 * S, 0)
    idle.tick(100 * S + FORGET_NS - 1)
    assert idle.use_ns
    idle.tick(100 * S + FORGET_NS)
    assert idle.use_ns == 0
