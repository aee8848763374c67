"""`Decision`: a value, however its figures came about."""

import copy
import pickle
from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import TypeVar

import pytest

from headgate import Decision, MemoryStore, RateLimiter, Store, TokenBucket
from headgate.stores.operations import Operation
from headgate.testing import ManualClock

R = TypeVar("R")

PACED = ["10/m", "7/s burst 13 gcra", "10/m leaky_bucket", "1/3s burst 5"]
MADE_BY: dict[str, Callable[[], Decision]] = {
    "the short way, allowed": lambda: limiter("10/m").hit("key", 3),
    "the short way, refused": lambda: refused("10/m"),
    "a window, allowed": lambda: limiter("10/m fixed_window").hit("key", 3),
    "a window, refused": lambda: refused("10/m fixed_window"),
    "a stack, allowed": lambda: limiter("10/m; 20/h").hit("key", 3),
    "a stack, refused": lambda: refused("10/m; 20/h"),
    "a cost that never fits": lambda: limiter("10/m").hit("key", 11),
}


class WithoutShortCut(Store):
    """A memory store whose hits all go through `run`."""

    def __init__(self, clock: ManualClock) -> None:
        self.store = MemoryStore(clock=clock)

    def run(self, operation: Operation[R]) -> R:
        return self.store.run(operation)


def limiter(limits: str) -> RateLimiter:
    return RateLimiter(limits, clock=ManualClock(3_600))


def refused(limits: str) -> Decision:
    full = limiter(limits)
    full.hit("key", 10)
    return full.hit("key")


@pytest.fixture(params=MADE_BY)
def decision(request: pytest.FixtureRequest) -> Decision:
    return MADE_BY[request.param]()


@pytest.mark.parametrize(("way", "make"), MADE_BY.items())
def test_it_is_true_when_allowed(way: str, make: Callable[[], Decision]) -> None:
    is_allowed = way.endswith(", allowed")
    assert make().allowed is is_allowed
    assert bool(make()) is is_allowed


def test_no_attribute_can_be_added(decision: Decision) -> None:
    with pytest.raises(AttributeError):
        decision.note = 1  # type: ignore[attr-defined]


def test_decisions_with_the_same_figures_are_equal_and_hash_alike() -> None:
    for make in MADE_BY.values():
        assert make() == make()
        assert hash(make()) == hash(make())
    assert len({make() for make in MADE_BY.values() for _ in range(2)}) == len(MADE_BY)


def test_it_is_not_equal_to_something_else(decision: Decision) -> None:
    assert decision != decision.allowed
    assert decision != "decision"
    assert decision != None  # noqa: E711 (the comparison itself is what is tested)


@pytest.mark.parametrize(
    "figure", ["allowed", "remaining", "retry", "reset", "key", "limit", "source"]
)
def test_decisions_that_differ_in_one_figure_are_not_equal(figure: str) -> None:
    def decision(odd: str = "") -> Decision:
        return Decision(
            "other" if odd == "key" else "key",
            TokenBucket(11 if odd == "limit" else 10, 1),
            allowed=odd != "allowed",
            remaining=8 if odd == "remaining" else 9,
            retry_after_ns=1 if odd == "retry" else 0,
            reset_after_ns=1 if odd == "reset" else 0,
            source="lease" if odd == "source" else "store",
        )

    assert decision() == decision()
    assert decision() != decision(figure)


def test_stacks_that_differ_in_a_part_are_not_equal() -> None:
    one, other = limiter("10/m; 20/h"), limiter("10/m; 30/h")
    assert one.hit("key") == limiter("10/m; 20/h").hit("key")
    assert one.hit("key") != other.hit("key")


def test_it_survives_pickling_and_copying(decision: Decision) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(decision, protocol)) == decision  # noqa: S301 (our own)
    assert copy.copy(decision) == decision
    assert copy.deepcopy(decision) == decision


def test_its_figures_are_those_of_the_moment_of_the_decision() -> None:
    clock = ManualClock()
    limiter = RateLimiter("10/m", clock=clock)
    decision = limiter.hit("key", 4)
    before = pickle.dumps(decision)
    limiter.hit("key", 6)
    clock.advance(1_000)
    assert decision == pickle.loads(before)  # noqa: S301 (our own)
    assert (decision.remaining, decision.reset_after) == (6, 24)


def test_its_repr_shows_the_figures() -> None:
    assert repr(limiter("10/m").hit("key", 4)) == (
        "Decision(allowed=True, key='key', limit='10/m', remaining=6, retry_after=0.0, "
        "reset_after=24.0, source='store')"
    )
    assert repr(limiter("10/m").hit("key", 11)) == (
        "Decision(allowed=False, key='key', limit='10/m', remaining=10, retry_after=None, "
        "reset_after=0.0, source='store')"
    )


def test_a_single_limit_is_its_own_part() -> None:
    for limits in ("10/m", "10/m fixed_window"):
        decision = limiter(limits).hit("key")
        assert decision.limits == (decision,)


@pytest.mark.parametrize("limits", PACED)
def test_the_short_way_says_exactly_what_the_long_way_says(limits: str) -> None:
    clock, random = ManualClock(3_600), Random(limits)
    short = RateLimiter(limits, store=MemoryStore(clock=clock))
    long = RateLimiter(limits, store=WithoutShortCut(clock))
    for _ in range(500):
        cost = random.choice([1, 1, 1, 2, 5, random.randint(0, 15)])
        one, other = short.hit("key", cost), long.hit("key", cost)
        assert one == other
        assert (hash(one), repr(one)) == (hash(other), repr(other))
        assert one.retry_after == other.retry_after
        assert one.limits == other.limits
        assert pickle.loads(pickle.dumps(one)) == other  # noqa: S301 (our own)
        look = short.peek("key", 0)
        assert (one.remaining, one.reset_after_ns) == (look.remaining, look.reset_after_ns)
        clock.advance_ns(random.choice([0, 1, 333_333_333, random.randrange(10**10)]))


def test_seconds_are_never_less_than_the_nanoseconds_they_stand_for() -> None:
    nanoseconds = 2**60 + 1
    decision = Decision(
        "key",
        TokenBucket(1, 1),
        allowed=False,
        remaining=0,
        retry_after_ns=nanoseconds,
        reset_after_ns=nanoseconds,
    )
    assert decision.retry_after is not None
    assert Fraction(decision.retry_after) * 10**9 >= nanoseconds
    assert Fraction(decision.reset_after) * 10**9 >= nanoseconds
