"""What happens at the edges: odd amounts, odd clocks, odd timeouts, forks and several loops."""

from __future__ import annotations

import asyncio
import math
import os
import pickle
import threading
from typing import Any

import pytest

from headgate import (
    AsyncRateLimiter,
    Concurrency,
    CostError,
    HeadgateError,
    Hit,
    KeyInvalidError,
    LimitError,
    MemoryStore,
    OptionError,
    RateLimiter,
    UsageError,
)
from headgate.runtime.waiting_lines import Lines, Place
from headgate.testing import ManualClock


class AnnouncedLines(Lines):
    """Lines that tell when somebody has joined one."""

    def __init__(self) -> None:
        super().__init__()
        self.joined = threading.Event()

    def join(self, key: str, place: Place) -> bool:
        is_first = super().join(key, place)
        self.joined.set()
        return is_first


def waiting_limiter() -> tuple[RateLimiter, threading.Thread]:
    """A limiter, and a thread that waits in its line for 'key' until it is woken."""
    limiter = RateLimiter("1/h; 5/h", store=MemoryStore(clock=ManualClock(3_600).__call__))
    limiter.hit("key")
    limiter._lines = lines = AnnouncedLines()
    thread = threading.Thread(target=limiter.acquire, args=("key",), daemon=True)
    thread.start()
    assert lines.joined.wait(10)
    return limiter, thread


def let_go(limiter: RateLimiter, thread: threading.Thread) -> None:
    limiter.refund("key", 1)
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("limiter", [RateLimiter, AsyncRateLimiter])
@pytest.mark.parametrize("store", ["memory://", "shm://unused", "redis://127.0.0.1:1"])
@pytest.mark.parametrize("clock", [5, "now", lambda: 1.5])
def test_a_clock_that_does_not_return_integers_fails_at_construction(
    limiter: Any, store: str, clock: Any
) -> None:
    with pytest.raises(OptionError, match=r"the clock .* expected a function like time\.time_ns"):
        limiter("5/s", store=store, name="n", clock=clock)


def test_a_cost_of_0_and_one_that_never_fits_do_not_line_up() -> None:
    limiter, thread = waiting_limiter()
    assert limiter.acquire("key", 0)
    refusal = limiter.acquire("key", 2)
    assert not refusal
    assert refusal.retry_after is None
    let_go(limiter, thread)


def test_a_refusal_in_line_still_tells_what_each_limit_said() -> None:
    limiter, thread = waiting_limiter()
    assert len(limiter.acquire("key", timeout=0).limits) == 2
    let_go(limiter, thread)


@pytest.mark.parametrize("timeout", [-1, -0.1, math.nan, "5", [], True])
def test_a_timeout_that_makes_no_sense_is_an_option_error(timeout: Any) -> None:
    with pytest.raises(OptionError, match="timeout"):
        RateLimiter("1/s").acquire("key", timeout=timeout)


@pytest.mark.parametrize("timeout", [1e10, 1e300, math.inf])
def test_a_timeout_of_ages_is_none(timeout: float) -> None:
    limiter, thread = waiting_limiter()
    second = threading.Thread(target=limiter.acquire, args=("key", 1, timeout), daemon=True)
    second.start()
    limiter.refund("key", 1)
    thread.join(10)
    while second.is_alive():
        limiter.refund("key", 1)
        second.join(0.01)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_nobody_waits_in_line_in_a_forked_child() -> None:
    limiter, thread = waiting_limiter()
    child = os.fork()
    if not child:
        os._exit(0 if limiter._lines.join("key", Place()) else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    let_go(limiter, thread)


def test_an_async_limiter_serves_tasks_of_several_loops() -> None:
    limiter = AsyncRateLimiter("1/h", store=MemoryStore(clock=ManualClock(3_600).__call__))
    served: list[bool] = []

    def wait_in_a_loop_of_its_own() -> None:
        served.append(asyncio.run(limiter.acquire("key")).allowed)

    threads = [threading.Thread(target=wait_in_a_loop_of_its_own, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            asyncio.run(_refund(limiter))
            thread.join(0.005)
    assert served == [True] * 4


async def _refund(limiter: AsyncRateLimiter) -> None:
    await limiter.refund("key", 1)


@pytest.mark.parametrize("limit", ["10/m", "10/m fixed_window", "10/m sliding_window_log"])
def test_a_clock_that_swings_mints_nothing_though_counters_are_swept(limit: str) -> None:
    clock = ManualClock(3_600)
    limiter = RateLimiter(limit, clock=clock)
    admitted, swings = 0, 50
    for n in range(1, swings + 1):
        late = 3_600 + 62 * n
        clock.set(late)
        limiter.peek("other")
        clock.set(3_590)
        admitted += sum(limiter.hit("key").allowed for _ in range(12))
        clock.set(late)
        admitted += sum(limiter.hit("key").allowed for _ in range(12))
    assert admitted <= 10 + 10 * (62 * swings + 10) / 60 + 10


def test_a_clock_beyond_all_ages_still_gives_slots() -> None:
    limiter = RateLimiter(Concurrency(1, 60), clock=lambda: 2**63)
    with limiter.slot("key") as slot:
        assert slot


def test_amounts_beyond_reason_are_refused_without_being_printed() -> None:
    limiter = RateLimiter("10/m")
    for amount in (10**19, 10**5_000, -(10**5_000)):
        with pytest.raises(CostError) as caught:
            limiter.charge("key", amount)
        assert len(str(caught.value)) < 200
    assert limiter.charge("key", 10**18).retry_after is not None


def test_a_reservation_of_nothing_is_open_until_it_is_settled() -> None:
    limiter = RateLimiter("10/m", clock=ManualClock())
    assert limiter.reserve("key", 0).commit(3)
    assert limiter.reserve("key", 0).cancel()
    assert limiter.peek("key").remaining == 7


def test_hit_many_wants_a_list_of_pairs() -> None:
    limiter = RateLimiter("10/m")
    with pytest.raises(UsageError, match="use hit"):
        limiter.hit_many("user:42")
    wrong: Any = [("a", 1), ("a", 1, 2)]
    with pytest.raises(UsageError, match="item 1 of hit_many"):
        limiter.hit_many(wrong)
    assert limiter.hit_many([]) == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("", "1/s"), KeyInvalidError),
        (("key", "nonsense"), LimitError),
        (("key", 5), UsageError),
        (("key", "1/s", -1), CostError),
        (("key", "1/s", 1, ""), UsageError),
        (("key", "1/s", 1, 5), UsageError),
        (("key", Concurrency(1, 1)), UsageError),
    ],
)
def test_a_hit_is_checked_when_it_is_made(arguments: Any, error: type[HeadgateError]) -> None:
    with pytest.raises(error):
        Hit(*arguments)


def test_hit_all_wants_hits() -> None:
    wrong: Any = [("key", "1/s")]
    with pytest.raises(UsageError, match="item 0 of hit_all"):
        RateLimiter("1/s").hit_all(wrong)


def test_a_wrong_limit_leaves_nothing_behind() -> None:
    store = MemoryStore()
    with pytest.raises(UsageError):
        RateLimiter("1/s", store=store).hit_all([Hit("key", 0.5)])  # type: ignore[arg-type]
    assert not store.groups()


@pytest.mark.parametrize("limits", [b"100/minute", {"100/minute": 1}, 5, None])
def test_what_is_no_limit_gets_a_limit_error_that_shows_it(limits: Any) -> None:
    with pytest.raises(LimitError, match="expected text"):
        RateLimiter(limits)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("limits", ["2/m", "2/m fixed_window", "2/m; 5/h"])
def test_decisions_survive_every_pickle_protocol(limits: str, protocol: int) -> None:
    limiter = RateLimiter(limits, clock=ManualClock())
    for _ in range(3):
        decision = limiter.hit("key")
        assert pickle.loads(pickle.dumps(decision, protocol)) == decision  # noqa: S301


def test_a_key_of_a_str_subclass_counts_as_the_text_it_is() -> None:
    class Name(str):
        __slots__ = ()

    limiter = RateLimiter("2/m", clock=ManualClock())
    assert limiter.hit(Name("key"))
    assert limiter.hit("key").remaining == 0
    assert type(limiter.peek(Name("key")).key) is str


def test_a_timeout_needs_a_wait() -> None:
    with pytest.raises(UsageError, match="wait=True"):
        RateLimiter("1/s").limit("key", timeout=1)
