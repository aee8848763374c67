"""`retry_after` under a concurrency limit: an estimate from recent hold times."""

from __future__ import annotations

from headgate import Concurrency, Decision, FixedWindow, RateLimiter
from headgate.engine.request import Request
from headgate.policy.loader import read_policy_data
from headgate.rule_engine import RuleEngine
from headgate.testing import ManualClock
from tests.support.failing_fallback import FailingStore


class Bench:
    """A limiter whose only slot is held and released."""

    def __init__(self, ttl: float = 60) -> None:
        self.clock = ManualClock()
        limits = [Concurrency(1, ttl), FixedWindow(10_000, 60)]
        self.limiter = RateLimiter(limits, clock=self.clock)

    def denied_during_hold(self, seconds: float, key: str = "key") -> Decision:
        """The denial of a second caller while the slot is held for *seconds*."""
        with self.limiter.slot(key) as slot:
            assert slot
            denied = self.limiter.slot(key).take()
            assert self.limiter.peek(key).retry_after == denied.retry_after
            self.clock.advance(seconds)
        return denied


def test_without_data_it_is_a_second_or_the_lease() -> None:
    assert Bench().denied_during_hold(0).retry_after == 1
    assert Bench(ttl=0.5).denied_during_hold(0).retry_after == 0.5


def test_it_follows_the_holds_of_all_keys_of_the_limit() -> None:
    bench = Bench()
    bench.denied_during_hold(5, "other")
    assert bench.denied_during_hold(5).retry_after == 5
    longer = bench.denied_during_hold(13)
    assert longer.retry_after == 5
    assert bench.denied_during_hold(0).retry_after == 6
    for _ in range(100):
        bench.denied_during_hold(20)
    last = bench.denied_during_hold(20).retry_after
    assert last is not None
    assert 19.9 < last <= 20


def test_it_is_between_100_ms_and_what_is_left_of_the_lease() -> None:
    bench = Bench(ttl=60)
    bench.denied_during_hold(0.05)
    assert bench.denied_during_hold(500).retry_after == 0.1
    bench.denied_during_hold(500)
    assert bench.denied_during_hold(500).retry_after == 60
    with bench.limiter.slot("key"):
        bench.clock.advance(45)
        assert bench.limiter.slot("key").take().retry_after == 15


def test_only_the_denial_of_a_concurrency_limit_is_an_estimate() -> None:
    bench = Bench()
    denied = bench.denied_during_hold(1)
    assert denied.is_estimate
    assert [part.is_estimate for part in denied.limits] == [True, False]
    allowed = bench.limiter.slot("key").take()
    assert not allowed.is_estimate
    limiter = RateLimiter("1/minute")
    assert not [limiter.hit("k"), limiter.hit("k")][1].is_estimate


def test_the_longest_wait_still_speaks() -> None:
    clock = ManualClock()
    limiter = RateLimiter([Concurrency(1, 60), FixedWindow(1, 10)], clock=clock)
    with limiter.slot("key"):
        denied = limiter.slot("key").take()
    assert not denied.is_estimate
    assert denied.retry_after == denied.limits[1].retry_after


def test_rules_and_their_shadows_have_estimates() -> None:
    live = {"id": "live", "key_by": "ip", "concurrency": 1}
    rules = [live, {**live, "id": "tried", "mode": "shadow"}]
    clock = ManualClock()
    engine = RuleEngine(read_policy_data({"version": 1, "rules": rules}), clock=clock)
    request = Request(peer="192.0.2.1")
    held = engine.check(request)
    denied = engine.check(request)
    assert (denied.retry_after, denied.is_estimate) == (1, True)
    assert [one.decision.retry_after for one in denied.rules] == [1, 1]
    clock.advance(3)
    engine.release(held)
    held = engine.check(request)
    assert engine.check(request).retry_after == 3
    engine.release(held)


def test_slots_of_an_outage_have_estimates() -> None:
    store = FailingStore()
    store.fault = "timeout"
    limiter = RateLimiter(Concurrency(1, 60), store=store, name="slots")
    with limiter.slot("key") as slot:
        assert slot
        denied = limiter.slot("key").take()
    assert (denied.allowed, denied.retry_after, denied.is_estimate) == (False, 1, True)
