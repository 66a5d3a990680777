"""A bounded cache computes a result once and drops the older half past its limit."""

from am.agent.bids.bounded_cache import BoundedCache


def test_a_result_is_computed_once():
    cache, calls = BoundedCache(4), []
    assert [cache.of("key", lambda: calls.append(1) or 7) for _ in range(3)] == [7, 7, 7]
    assert calls == [1]


def test_past_the_limit_the_older_half_goes():
    cache, calls = BoundedCache(4), []
    for key in (1, 2, 3, 4, 5, 5, 3, 1):
        cache.of(key, lambda key=key: calls.append(key))
    assert calls == [1, 2, 3, 4, 5, 1]
    assert len(cache) == 4
