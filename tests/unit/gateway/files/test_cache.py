"""Small files in memory: bounded over all routes, the unused ones go first."""

from hypothesis import given
from hypothesis import strategies as st

from torchgate.gateway.files.cache import CacheBudget, FileCache
from torchgate.gateway.files.representation import Found, Representation


def found(size, *, in_memory=True):
    identity = (1, 2, size, 3, 4)
    made = Representation(b"", identity, size, b"text/plain", b"", vary=b"", now_s=9.0)
    made.body = bytes(size) if in_memory else None
    return Found("f", {b"": made}, (), index=False)


def test_what_was_used_stays():
    """One more than fits takes the place of the oldest that nobody asked for since."""
    cache = FileCache(CacheBudget(limit=3 * (1000 + 1024 + 2)))
    for name in "abc":
        cache.put(name, found(1000))
    cache.found["a"].used = True
    cache.put("d", found(1000))
    assert set(cache.found) == {"a", "c", "d"}
    for one in cache.found.values():
        one.used = True
    cache.put("e", found(1000))
    assert len(cache.found) == 3
    assert "e" in cache.found


def test_too_large_for_any_cache():
    """Nothing else is thrown away in vain; what is not in memory is never kept."""
    budget = CacheBudget(limit=5000)
    cache = FileCache(budget)
    cache.put("x", found(10, in_memory=False))
    assert (cache.found, budget.held) == ({}, 0)
    cache.put("b", found(10))
    cache.put("a", found(9000))
    assert set(cache.found) == {"b"}


def test_a_route_that_nobody_asks_any_more_gives_way():
    """Whose files are kept is a matter of what is asked for, not of who came first."""
    budget = CacheBudget(limit=20_000)
    idle, busy = FileCache(budget), FileCache(budget)
    for i in range(8):
        idle.put(f"{i}", found(1000))
    for i in range(8):
        busy.put(f"{i}", found(1000))
    assert len(busy.found) == 8
    assert len(idle.found) < 3
    assert budget.held == sum(one.held for one in budget.kept) <= budget.limit


def test_a_cache_that_goes_gives_back_its_share():
    """Routes are made anew when the configuration changes."""
    budget = CacheBudget(limit=100_000)
    first, second = FileCache(budget), FileCache(budget)
    first.put("a", found(1000))
    second.put("a", found(1000))
    held = budget.held
    del first
    assert budget.held * 2 == held


def test_a_compressed_form_counts():
    """Unless what it belongs to is not kept any more."""
    budget = CacheBudget(limit=100_000)
    cache = FileCache(budget)
    one = found(1000)
    cache.put("a", one)
    held = budget.held
    assert cache.grow(one, 500)
    assert budget.held == held + 500
    assert not cache.grow(one, 100_000)
    cache.drop("a")
    assert not cache.grow(one, 1)
    assert budget.held == 0


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 5000), st.booleans())))
def test_never_beyond_the_bound(steps):
    """Whatever is put in, in whatever order: the count is right and within the bound."""
    budget = CacheBudget(limit=12_000)
    cache = FileCache(budget)
    for path, size, used in steps:
        cache.put(path, found(size))
        if path in cache.found:
            cache.found[path].used = used
        assert budget.held == sum(one.held for one in cache.found.values()) <= budget.limit
