"""A decision that lets wait: the delay is part of what it says."""

import copy
import pickle

from headgate import Decision, RateLimiter, TokenBucket
from headgate.decision import combine
from headgate.limits import LeakyQueue
from headgate.testing import ManualClock


def part(delay_ns: int, *, allowed: bool = True, remaining: int = 5) -> Decision:
    return Decision(
        "key",
        TokenBucket(10, 1),
        allowed=allowed,
        remaining=remaining,
        retry_after_ns=0 if allowed else 7,
        reset_after_ns=9,
        delay_ns=delay_ns,
        place_ns=100 + delay_ns if delay_ns else 0,
    )


def delayed() -> Decision:
    limiter = RateLimiter(LeakyQueue(10, 5), clock=ManualClock(1_000))
    limiter.hit("key")
    return limiter.hit("key")


def test_the_delay_is_in_seconds_and_the_turn_on_the_clock() -> None:
    decision = delayed()
    assert (decision.delay, decision.delay_ns) == (0.1, 100_000_000)
    assert decision.place_ns == 1_000_100_000_000
    assert "delay=0.1" in repr(decision)
    assert "delay" not in repr(part(0))


def test_decisions_that_differ_in_the_delay_are_not_equal() -> None:
    assert part(3) == part(3)
    assert hash(part(3)) == hash(part(3))
    assert part(3) != part(4)
    assert part(0) != part(4)


def test_copies_keep_the_delay() -> None:
    together = combine([part(3), part(8)])
    for decision in (delayed(), together):
        for twin in (pickle.loads(pickle.dumps(decision)), copy.deepcopy(decision)):  # noqa: S301
            assert twin == decision
            assert (twin.delay_ns, twin.place_ns) == (decision.delay_ns, decision.place_ns)
            assert [one.place_ns for one in twin.limits] == [
                one.place_ns for one in decision.limits
            ]


def test_of_several_the_latest_turn_counts_and_each_keeps_its_own() -> None:
    decision = combine([part(3, remaining=1), part(8), part(0)])
    assert (decision.delay_ns, decision.place_ns, decision.remaining) == (8, 108, 1)
    assert [one.place_ns for one in decision.limits] == [103, 108, 0]


def test_what_is_refused_has_no_turn() -> None:
    decision = combine([part(3), part(0, allowed=False)])
    assert (decision.allowed, decision.delay_ns, decision.place_ns) == (False, 0, 0)
