"""The cache that is bounded in bytes."""

import pytest

from headgate.runtime import bounded_cache
from headgate.runtime.bounded_cache import BoundedCache


def cached(cache: BoundedCache[int], key: bytes) -> int | None:
    found = cache.get(key)
    return None if found is None else found[0]


def test_values_are_bounded_in_bytes_and_the_oldest_is_dropped() -> None:
    cache: BoundedCache[int] = BoundedCache(1_000)
    for n in range(100):
        cache.put(b"%d" % n, n, 10 + n)
        assert cache.size <= 1_000
    assert len(cache) == 9
    assert cached(cache, b"99") == 99
    assert cached(cache, b"90") is None


def test_a_value_larger_than_the_cache_is_not_kept() -> None:
    cache: BoundedCache[int] = BoundedCache(1_000)
    cache.put(b"large", 1, 1_001)
    assert len(cache) == cache.size == 0
    cache.put(b"fits", 1, 1_000)
    assert len(cache) == 1


def test_a_value_that_is_replaced_counts_once() -> None:
    cache: BoundedCache[int] = BoundedCache(1_000)
    for n in range(5):
        cache.put(b"same", n, 100 * n)
    assert (len(cache), cache.size, cached(cache, b"same")) == (1, 400, 4)


def test_a_key_is_offered_again_the_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_cache, "MAX_OFFERED", 30)
    cache: BoundedCache[int] = BoundedCache(1_000)
    assert [cache.is_offered_again(b"k") for _ in range(3)] == [False, True, True]
    for n in range(1_000):
        assert not cache.is_offered_again(b"%d" % n)
        assert len(cache._offered) <= 30
    assert not cache.is_offered_again(b"k")


def test_a_fork_replaces_the_lock() -> None:
    cache: BoundedCache[int] = BoundedCache(1_000)
    with cache._lock:
        cache.after_fork()
        cache.put(b"k", 1, 1)
    assert cached(cache, b"k") == 1
