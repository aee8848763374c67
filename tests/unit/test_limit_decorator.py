"""The decorator: each call is a hit."""

import asyncio
import functools
import inspect
from typing import Any

import pytest

from headgate import (
    AsyncRateLimiter,
    CostError,
    KeyInvalidError,
    RateLimitedError,
    RateLimiter,
    UsageError,
)
from headgate.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def limiter(clock: ManualClock) -> RateLimiter:
    return RateLimiter("2/m", clock=clock)


@pytest.fixture
def aio(clock: ManualClock) -> AsyncRateLimiter:
    return AsyncRateLimiter("2/m", clock=clock)


def test_calls_beyond_the_limit_raise_and_are_not_made(limiter: RateLimiter) -> None:
    calls = []

    @limiter.limit("key")
    def double(number: int) -> int:
        calls.append(number)
        return 2 * number

    assert [double(1), double(number=2)] == [2, 4]
    with pytest.raises(RateLimitedError) as caught:
        double(3)
    assert calls == [1, 2]
    decision = caught.value.decision
    assert (decision.allowed, decision.key, decision.retry_after) == (False, "key", 30)


def test_a_refusal_says_who_and_until_when() -> None:
    limiter = RateLimiter("1/m", clock=ManualClock())

    @limiter.limit("user:42", cost=lambda cost: cost)
    def work(cost: int) -> None: ...

    work(1)
    with pytest.raises(RateLimitedError, match=r"'user:42'.*1/m.*retry after 60 s"):
        work(1)
    with pytest.raises(RateLimitedError, match=r"'user:42'.*never"):
        work(2)


def test_a_key_can_be_made_from_the_arguments(limiter: RateLimiter) -> None:
    @limiter.limit(lambda user, *, tenant: f"{tenant}/{user}")
    def greet(user: str, *, tenant: str) -> str:
        return user

    assert greet("ann", tenant="a") == "ann"
    assert greet("ann", tenant="b") == "ann"
    assert limiter.peek("a/ann").remaining == 1
    assert limiter.peek("b/ann").remaining == 1


def test_without_a_key_all_calls_of_a_function_share_one(limiter: RateLimiter) -> None:
    @limiter.limit()
    def one(number: int) -> None: ...

    @limiter.limit()
    def other() -> None: ...

    one(1)
    one(2)
    with pytest.raises(RateLimitedError):
        one(3)
    other()


def test_a_cost_can_be_fixed_or_made_from_the_arguments() -> None:
    limiter = RateLimiter("10/m", clock=ManualClock())

    @limiter.limit("fixed", cost=4)
    def fixed() -> None: ...

    @limiter.limit("made", cost=len)
    def send(items: list[str]) -> None: ...

    fixed()
    send(["a", "b", "c"])
    assert limiter.peek("fixed").remaining == 6
    assert limiter.peek("made").remaining == 7


def test_a_bad_key_or_cost_is_raised_and_the_function_not_called(limiter: RateLimiter) -> None:
    @limiter.limit(lambda key, _: key, cost=lambda _, cost: cost)
    def work(key: Any, cost: Any) -> None:
        raise AssertionError("called")

    with pytest.raises(KeyInvalidError):
        work("", 1)
    with pytest.raises(KeyInvalidError):
        work(None, 1)
    with pytest.raises(CostError):
        work("key", -1)


def test_a_call_can_wait(limiter: RateLimiter, clock: ManualClock) -> None:
    @limiter.limit("key", wait=True)
    def work() -> float:
        return clock.now

    assert [work() for _ in range(4)] == [0, 0, 30, 60]


def test_a_call_that_would_wait_too_long_raises(limiter: RateLimiter, clock: ManualClock) -> None:
    @limiter.limit("key", wait=True, timeout=29)
    def work() -> None: ...

    work()
    work()
    with pytest.raises(RateLimitedError):
        work()
    assert clock.now == 0


def test_what_the_function_raises_is_raised(limiter: RateLimiter) -> None:
    @limiter.limit("key")
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert limiter.peek("key").remaining == 1


def test_a_decorated_function_looks_like_itself(
    limiter: RateLimiter, aio: AsyncRateLimiter
) -> None:
    def plain(number: int, *, flag: bool = False) -> int:
        """What it does."""
        return number

    async def later(number: int) -> int:
        """What it does later."""
        return number

    decorated, decorated_later = limiter.limit("key")(plain), aio.limit("key")(later)
    assert (decorated.__name__, decorated.__doc__) == ("plain", "What it does.")
    assert inspect.signature(decorated) == inspect.signature(plain)
    assert inspect.unwrap(decorated) is plain
    assert decorated_later.__qualname__ == later.__qualname__
    assert inspect.iscoroutinefunction(decorated_later)
    assert not inspect.iscoroutinefunction(decorated)


def test_methods_can_be_decorated(limiter: RateLimiter) -> None:
    class Client:
        def __init__(self, name: str) -> None:
            self.name = name

        @limiter.limit(lambda self: self.name)
        def call(self) -> str:
            return self.name

        @staticmethod
        @limiter.limit("static")
        def fixed() -> str:
            return "static"

    one, other = Client("one"), Client("other")
    assert [one.call(), one.call(), other.call(), Client.fixed()] == [
        "one",
        "one",
        "other",
        "static",
    ]
    with pytest.raises(RateLimitedError):
        one.call()


def test_an_async_function_needs_the_async_limiter(
    limiter: RateLimiter, aio: AsyncRateLimiter
) -> None:
    async def later() -> None: ...

    def plain() -> None: ...

    with pytest.raises(UsageError, match=r"later is async.*AsyncRateLimiter"):
        limiter.limit("key")(later)
    with pytest.raises(UsageError, match=r"plain is not async.*RateLimiter"):
        aio.limit("key")(plain)


def test_a_callable_without_a_name_can_be_decorated(limiter: RateLimiter) -> None:
    half = limiter.limit("key")(functools.partial(pow, 2))
    assert half(3) == 8
    assert limiter.peek("key").remaining == 1


def test_the_decorator_without_parentheses_is_a_usage_error(limiter: RateLimiter) -> None:
    def shout(text: str) -> str:
        return text.upper()

    decorated: Any = limiter.limit(shout)
    with pytest.raises(UsageError):
        decorated("quiet")


def test_async_calls_beyond_the_limit_raise(aio: AsyncRateLimiter) -> None:
    @aio.limit(lambda _: "key", cost=lambda number: number)
    async def double(number: int) -> int:
        return 2 * number

    async def main() -> None:
        assert await double(2) == 4
        with pytest.raises(RateLimitedError) as caught:
            await double(1)
        assert caught.value.decision.retry_after == 30

    asyncio.run(main())


def test_async_calls_can_wait(aio: AsyncRateLimiter, clock: ManualClock) -> None:
    @aio.limit(wait=True, timeout=40)
    async def work() -> float:
        return clock.now

    async def main() -> None:
        assert [await work() for _ in range(3)] == [0, 0, 30]

    asyncio.run(main())
