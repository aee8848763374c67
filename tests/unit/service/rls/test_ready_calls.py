"""The cache of calls by message: entries, and the memory that they take."""

from __future__ import annotations

import gc
import time
import tracemalloc

import pytest

from headgate.policy.loader import read_policy
from headgate.rule_engine import AsyncRuleEngine
from headgate.runtime.bounded_cache import BoundedCache
from headgate.service.core import Core
from headgate.service.rls import RateLimitCalls
from headgate.service.rls.calls import LARGEST_MESSAGE
from headgate.service.rls.messages import RateLimitRequest

MANY = 50
WIDE = "\N{GRINNING FACE}"


def test_a_call_is_kept_when_its_message_comes_a_second_time() -> None:
    calls = _calls(rules=1)
    for n in range(2_000):
        calls.should_rate_limit(_described(str(n)))
    assert len(calls._ready) == 0
    calls.should_rate_limit(_described("7"))
    assert len(calls._ready) == 1


def test_ten_thousand_callers_fit() -> None:
    calls = _calls(rules=1)
    asked = [_described(f"198.51.{n >> 8}.{n & 255}") for n in range(10_000)]
    for _ in range(2):
        for one in asked:
            calls.should_rate_limit(one)
    assert len(calls._ready) == len(asked)


@pytest.mark.parametrize("rules", [1, 5])
@pytest.mark.parametrize(
    "value", ["", "x" * 300, WIDE * 80, "x" * 300 + WIDE], ids=["short", "long", "wide", "mixed"]
)
def test_rate_limit_calls_take_no_more_memory_than_estimated(rules: int, value: str) -> None:
    calls = _calls(rules=rules)
    asked = [_described(f"{n}-{value}") for n in range(MANY)]
    assert all(len(one) <= LARGEST_MESSAGE for one in asked)
    taken, estimated = _sizes(calls, asked)
    assert 0 < taken <= estimated


def _sizes(calls: RateLimitCalls, asked: list[bytes]) -> tuple[int, int]:
    """The bytes of the entries in the cache, which are kept when all is asked a second time, and
    their estimate."""
    gc.freeze()  # what is there already is not looked through with each collection
    tracemalloc.start()
    try:
        for _ in range(2):
            for one in asked:
                calls.should_rate_limit(one)
        cache = calls._ready
        assert len(cache) == MANY
        estimated = cache.size
        gc.collect()  # what else there is to free must not count
        held, _ = tracemalloc.get_traced_memory()
        del cache
        calls._ready = BoundedCache(1)
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
