"""The cache of requests: what stays, what goes, and how much memory it takes."""

from __future__ import annotations

import gc
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from headgate.policy.loader import read_policy
from headgate.rule_engine import AsyncRuleEngine
from headgate.service import remembered
from headgate.service.core import Core
from headgate.service.remembered import LARGEST, Remembered
from headgate.service.rls import RateLimitCalls
from headgate.service.rls.messages import RateLimitRequest

if TYPE_CHECKING:
    from collections.abc import Callable

MANY = 50
WIDE = "\N{GRINNING FACE}"


def test_what_comes_often_stays_while_entries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "MOST", 10)
    monkeypatch.setattr(remembered, "MOST_SEEN", 30)
    cache: Remembered[bytes, int] = Remembered()
    cache.keep(b"often", 1, 1)
    assert cache.get(b"often") is None
    cache.keep(b"often", 1, 1)
    for n in range(1000):
        for _ in range(2):
            cache.keep(b"%d" % n, n, 1)
        assert cache.get(b"often") == 1
        assert len(cache) <= 10
        assert cache.size == len(cache)
        assert len(cache._seen) <= 30
    assert cache.get(b"0") is None
    cache.clear()
    assert len(cache) == cache.size == 0


def test_entries_are_bounded_in_bytes() -> None:
    cache: Remembered[bytes, int] = Remembered(most_bytes=1_000)
    for n in range(100):
        for _ in range(2):
            cache.keep(b"%d" % n, n, 10 + n)
        assert cache.size <= 1_000
    assert len(cache) == 9
    assert cache.get(b"99") == 99
    assert cache.get(b"90") is None


def test_an_entry_larger_than_the_cache_is_not_kept() -> None:
    cache: Remembered[bytes, int] = Remembered(most_bytes=1_000)
    for _ in range(2):
        cache.keep(b"large", 1, 1_001)
    assert len(cache) == cache.size == 0


def test_an_entry_that_is_replaced_counts_once() -> None:
    cache: Remembered[bytes, int] = Remembered(most_bytes=1_000)
    for n in range(5):
        cache.keep(b"same", n, 100 * n)
    assert (len(cache), cache.size, cache.get(b"same")) == (1, 400, 4)


def test_those_who_come_by_once_are_not_remembered() -> None:
    cache: Remembered[bytes, int] = Remembered()
    for n in range(20_000):
        cache.keep(b"%d" % n, n, 1)
    assert len(cache) == 0


def test_ten_thousand_callers_fit() -> None:
    calls = _calls(rules=1)
    asked = [_described(f"198.51.{n >> 8}.{n & 255}") for n in range(10_000)]
    for _ in range(2):
        for one in asked:
            calls.should_rate_limit(one)
    assert len(calls._remembered) == len(asked)


@pytest.mark.parametrize("rules", [1, 5])
@pytest.mark.parametrize(
    "value", ["", "x" * 300, WIDE * 80, "x" * 300 + WIDE], ids=["short", "long", "wide", "mixed"]
)
def test_rate_limit_calls_take_no_more_memory_than_estimated(rules: int, value: str) -> None:
    calls = _calls(rules=rules)
    asked = [_described(f"{n}-{value}") for n in range(MANY)]
    assert all(len(one) <= LARGEST for one in asked)
    cache = calls._remembered
    taken, estimated = _sizes(lambda: [calls.should_rate_limit(one) for one in asked], cache)
    assert 0 < taken <= estimated


def _sizes(ask_all: Callable[[], object], cache: Remembered[Any, Any]) -> tuple[int, int]:
    """The bytes of the entries in *cache*, which are kept when all is asked a second time, and
    their estimate."""
    gc.freeze()  # what is there already is not looked through with each collection
    tracemalloc.start()
    try:
        for _ in range(2):
            ask_all()
        assert len(cache) == MANY
        estimated = cache.size
        gc.collect()  # what else there is to free must not count
        held, _ = tracemalloc.get_traced_memory()
        cache.clear()
        gc.collect()
        return held - tracemalloc.get_traced_memory()[0], estimated
    finally:
        tracemalloc.stop()


def _policy(rules: int, key_by: str) -> str:
    each = [f"  - {{id: r{n}, key_by: '{key_by}', limit: 1000/s}}\n" for n in range(rules)]
    return "version: 1\nrules:\n" + "".join(each)


def _calls(rules: int) -> RateLimitCalls:
    policy = read_policy(_policy(rules, key_by="attribute:remote_address"))
    engine = AsyncRuleEngine(policy, salt=b"salt")
    return RateLimitCalls(Core(rules=engine, clock=time.time_ns, secret=b"secret"))


def _described(caller: str) -> bytes:
    request = RateLimitRequest(domain="any")
    entry = request.descriptors.add().entries.add()
    entry.key, entry.value = "remote_address", caller
    return bytes(request.SerializeToString())
