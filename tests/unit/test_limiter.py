"""`RateLimiter`: how it is made, what it validates, and what it never asks the store."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from headgate import (
    AsyncRateLimiter,
    Concurrency,
    CostError,
    FixedWindow,
    Hit,
    KeyInvalidError,
    LimitError,
    MemoryStore,
    NotationError,
    RateLimiter,
    Store,
    StoreURLError,
    TokenBucket,
    UsageError,
)
from headgate.errors import OptionError
from headgate.stores.operations import Operation
from headgate.testing import ManualClock

R = TypeVar("R")


class UntouchedStore(Store):
    """A store that nobody may ask."""

    is_closed = False

    def run(self, operation: Operation[R]) -> R:
        raise AssertionError(f"asked for {operation}")

    def close(self) -> None:
        self.is_closed = True


Verb = Callable[[RateLimiter, Any], object]

VERBS_WITH_A_COST: list[Verb] = [
    lambda limiter, cost: limiter.hit("key", cost),
    lambda limiter, cost: limiter.peek("key", cost),
    lambda limiter, cost: limiter.acquire("key", cost),
    lambda limiter, cost: limiter.reserve("key", cost),
    lambda limiter, cost: limiter.charge("key", cost),
    lambda limiter, cost: limiter.refund("key", cost),
    lambda limiter, cost: limiter.hit_many([("key", 1), ("key", cost)]),
    lambda limiter, cost: limiter.hit_all([Hit("key", "1/s"), Hit("other", "1/s", cost)]),
]
VERBS_WITH_A_KEY: list[Verb] = [
    lambda limiter, key: limiter.hit(key),
    lambda limiter, key: limiter.peek(key),
    lambda limiter, key: limiter.acquire(key),
    lambda limiter, key: limiter.reserve(key, 1),
    lambda limiter, key: limiter.charge(key, 1),
    lambda limiter, key: limiter.refund(key, 1),
    lambda limiter, key: limiter.reset(key),
    lambda limiter, key: limiter.hit_many([("good", 1), (key, 1)]),
    lambda limiter, key: limiter.hit_all([Hit("good", "1/s"), Hit(key, "1/s")]),
]


@pytest.mark.parametrize("cost", [-1, 1.0, 0.5, float("nan"), True, "1", None])
@pytest.mark.parametrize("verb", VERBS_WITH_A_COST)
def test_a_bad_cost_never_reaches_the_store(verb: Verb, cost: Any) -> None:
    with pytest.raises(CostError) as caught:
        verb(RateLimiter("10/m", store=UntouchedStore()), cost)
    assert repr(cost) in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("key", ["", None, 42, b"key", ["key"], ("key",)])
@pytest.mark.parametrize("verb", VERBS_WITH_A_KEY)
def test_a_bad_key_never_reaches_the_store(verb: Verb, key: Any) -> None:
    with pytest.raises(KeyInvalidError):
        verb(RateLimiter("10/m", store=UntouchedStore()), key)


@pytest.mark.parametrize("limits", ["10/m", "10/m fixed_window", "10/m; 20/m gcra"])
@pytest.mark.parametrize("key", ["", None, 42, ["key"]])
def test_a_bad_key_is_refused_on_the_short_way_too(limits: str, key: Any) -> None:
    limiter = RateLimiter(limits)
    with pytest.raises(KeyInvalidError):
        limiter.hit(key)
    with pytest.raises(KeyInvalidError):
        limiter.hit(key, 3)


@pytest.mark.parametrize("limits", ["10/m", "10/m fixed_window", "10/m; 20/m gcra"])
@pytest.mark.parametrize("cost", [-1, 1.0, float("nan"), True, "1", None])
def test_a_bad_cost_is_refused_on_the_short_way_too(limits: str, cost: Any) -> None:
    limiter = RateLimiter(limits)
    with pytest.raises(CostError):
        limiter.hit("key", cost)
    assert limiter.peek("key").remaining == 10


def test_limits_may_be_text_a_limit_or_several_of_both() -> None:
    bucket, window = TokenBucket(10, 1), FixedWindow(5, 60)
    assert RateLimiter("10/s").limits == (TokenBucket(10, 10),)
    assert RateLimiter("5/m fixed_window; 10/s").limits == (window, TokenBucket(10, 10))
    assert RateLimiter(bucket).limits == (bucket,)
    assert RateLimiter([bucket, "5/m fixed_window"]).limits == (bucket, window)
    assert RateLimiter(limit for limit in (bucket, window)).limits == (bucket, window)


@pytest.mark.parametrize("limits", [[], (), None, 5, [None], [5], b"10/s", {"10/s": 1}.items()])
def test_what_is_no_limit_is_a_limit_error(limits: Any) -> None:
    with pytest.raises(LimitError):
        RateLimiter(limits)


def test_a_text_that_is_no_limit_is_a_notation_error() -> None:
    with pytest.raises(NotationError):
        RateLimiter(["10/s", "many"])


def test_an_unknown_failure_policy_is_a_value_error_that_names_the_known() -> None:
    with pytest.raises(ValueError, match=r"'fail_never'.*'fail_open' or 'fail_closed'"):
        RateLimiter("1/s", on_store_failure="fail_never")  # type: ignore[arg-type]


@pytest.mark.parametrize("store", [None, 5, MemoryStore])
def test_what_is_no_store_is_a_store_url_error(store: Any) -> None:
    with pytest.raises(StoreURLError):
        RateLimiter("1/s", store=store)


@pytest.mark.parametrize("kind", [RateLimiter, AsyncRateLimiter])
def test_a_clock_beside_a_store_is_an_error(kind: Any) -> None:
    with pytest.raises(ValueError, match="clock to the store"):
        kind("1/s", store=MemoryStore(), clock=ManualClock())


def test_a_limiter_closes_its_store() -> None:
    store = UntouchedStore()
    with RateLimiter("1/s", store=store) as limiter:
        assert limiter.store is store
        assert not store.is_closed
    assert store.is_closed


def test_its_repr_shows_the_limits() -> None:
    assert repr(RateLimiter("5/s; 100/m gcra")) == "RateLimiter('5/s; 100/m gcra')"


def test_slots_and_hits_do_not_mix() -> None:
    limiter = RateLimiter(["10/m", Concurrency(1, 60)], store=UntouchedStore())
    for verb in VERBS_WITH_A_COST[:1] + VERBS_WITH_A_COST[2:4]:
        with pytest.raises(UsageError, match="slot"):
            verb(limiter, 1)
    with pytest.raises(UsageError, match="slot"):
        limiter.hit_many(["key"])
    with pytest.raises(UsageError, match="Concurrency"):
        RateLimiter("10/m", store=UntouchedStore()).slot("key")


def test_hit_all_needs_hits_whose_limits_agree() -> None:
    limiter = RateLimiter("1/s", store=UntouchedStore())
    with pytest.raises(UsageError, match="at least one"):
        limiter.hit_all([])
    with pytest.raises(UsageError, match="two limits"):
        limiter.hit_all([Hit("key", "1/s", name="a"), Hit("key", "2/s", name="a")])
    with pytest.raises(UsageError, match="slot"):
        limiter.hit_all([Hit("key", Concurrency(1, 60))])


def test_hit_all_takes_limits_and_names_for_different_counters() -> None:
    limiter = RateLimiter(FixedWindow(10, 10), clock=ManualClock())
    limiter.hit("key", 1)
    for limit in (TokenBucket(10, 1), FixedWindow(10, 10)):
        assert limiter.hit_all([Hit("key", limit, 2)]).remaining == 8
        assert limiter.hit_all([Hit("key", limit, 3, name=f"{limit}!")]).remaining == 7
    assert limiter.peek("key").remaining == 9


def test_names_in_hit_all_cannot_reach_the_counters_of_a_limiter() -> None:
    store, limit = MemoryStore(clock=ManualClock()), FixedWindow(10, 10)
    one, other = (RateLimiter(limit, store=store, namespace=name) for name in ("n", "n:x"))
    one.hit_all([Hit("key", limit, 10, name="0"), Hit("key", limit, 10, name="x:0")])
    assert (one.peek("key").remaining, other.peek("key").remaining) == (10, 10)


def test_a_named_counter_of_hit_all_outlives_its_limit() -> None:
    clock = ManualClock()
    limiter = RateLimiter("1/s", clock=clock)
    limiter.hit_all([Hit("key", FixedWindow(10, 10), 6, name="plan")])
    clock.advance(1)
    assert limiter.hit_all([Hit("key", FixedWindow(20, 10), 1, name="plan")]).remaining == 13


def test_a_subclass_that_overrides_hit_is_asked() -> None:
    class Generous(RateLimiter):
        def hit(self, key: str, cost: int = 1) -> Any:
            return super().hit(key, cost // 2)

    limiter = Generous("10/m", clock=ManualClock())
    assert limiter.hit("key", 20).remaining == 0


def test_hit_is_documented_and_has_its_signature_on_the_short_way() -> None:
    limiter = RateLimiter("10/m", clock=ManualClock())
    assert limiter.hit.__doc__ == RateLimiter.hit.__doc__
    assert limiter.hit(key="key", cost=3).remaining == 7


def test_without_a_clock_a_limiter_reads_the_time_itself() -> None:
    limiter = RateLimiter("2/h")
    assert [limiter.hit("key").allowed for _ in range(3)] == [True, True, False]
    wait = limiter.peek("key").retry_after
    assert wait is not None
    assert 0 < wait <= 1_800


@pytest.mark.parametrize("limits", ["10/m", "10/m fixed_window", "10/m sliding_window_log"])
def test_a_clock_before_the_epoch_counts_rightly(limits: str) -> None:
    limiter = RateLimiter(limits, clock=ManualClock(-1_000_000))
    assert [limiter.hit("key").remaining for _ in range(4)] == [9, 8, 7, 6]


@pytest.mark.parametrize("limiter", [RateLimiter, AsyncRateLimiter])
@pytest.mark.parametrize(
    "store", ["redis://:secret@127.0.0.1:1/0", "redis+cluster://127.0.0.1:1", "shm://unnamed"]
)
def test_a_limiter_on_a_shared_store_needs_a_name(
    limiter: type[RateLimiter] | type[AsyncRateLimiter], store: str
) -> None:
    with pytest.raises(OptionError, match="a limiter on a shared store needs a name") as caught:
        limiter("5/minute", store=store)
    assert "secret" not in str(caught.value)
    limiter("5/minute", store=store, name="api")
    limiter("5/minute")  # no other process has the counters of a memory store
