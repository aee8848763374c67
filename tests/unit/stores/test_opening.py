"""From a URL to a store."""

import asyncio
from typing import Any

import pytest

from headgate import AsyncRateLimiter, HeadgateError, MemoryStore, RateLimiter, StoreURLError
from headgate.stores import open_store
from headgate.testing import ManualClock


def test_a_memory_url_opens_a_store_of_its_own() -> None:
    one, other = open_store("memory://", None), open_store("memory://", None)
    assert isinstance(one, MemoryStore)
    assert one is not other
    assert isinstance(open_store("memory://", None), MemoryStore)


def test_a_store_is_itself() -> None:
    store = MemoryStore()
    aio = store
    assert open_store(store, None) is store
    assert open_store(aio, None) is aio


def test_an_empty_store_is_a_store() -> None:
    store = MemoryStore()
    assert RateLimiter("1/s", store=store).store is store


def test_the_clock_given_to_a_limiter_is_the_stores() -> None:
    clock = ManualClock(5)
    limiter = RateLimiter("1/m", clock=clock)
    limiter.hit("key")
    clock.advance(60)
    assert limiter.hit("key")


def test_a_memory_url_may_say_how_many_keys() -> None:
    store = open_store("memory://?max_keys=3", ManualClock())
    assert isinstance(store, MemoryStore)
    limiter = RateLimiter("1/h", store=store)
    for n in range(10_000):
        limiter.hit(f"key {n}")
    assert len(store) <= 3 + 1_024


@pytest.mark.parametrize(
    "url",
    [
        "",
        "memory",
        "disk://",
        "memory://host",
        "memory://host:1",
        "memory:///path",
        "memory://?max_keys=0",
        "memory://?max_keys=-1",
        "memory://?max_keys=1.5",
        "memory://?max_keys=",
        "memory://?max_keys=\N{ARABIC-INDIC DIGIT FIVE}",
        "memory://?max_keys=" + "9" * 5_000,
        "memory://?keys=5",
        "memory://?max_keys=5&keys=5",
        "memory://[",
    ],
)
def test_a_url_that_makes_no_sense_is_an_error_that_shows_it(url: str) -> None:
    with pytest.raises(StoreURLError) as caught:
        RateLimiter("1/s", store=url)
    assert "memory://" in str(caught.value) or repr(url)[:40] in str(caught.value)
    assert isinstance(caught.value, HeadgateError)
    assert isinstance(caught.value, ValueError)
    with pytest.raises(StoreURLError):
        AsyncRateLimiter("1/s", store=url)


@pytest.mark.parametrize("max_keys", [0, -1, 1.5, True, None, "5"])
def test_a_store_of_no_size_is_a_value_error(max_keys: Any) -> None:
    with pytest.raises(ValueError, match="max_keys"):
        MemoryStore(max_keys=max_keys)


def test_a_memory_store_serves_threads_and_event_loops_alike() -> None:
    store = MemoryStore(clock=ManualClock())
    plain = RateLimiter("10/m", store=store)
    loops = [
        AsyncRateLimiter("10/m", store=store),
        AsyncRateLimiter("10/m", store=store),
    ]
    plain.hit("key", 2)
    assert [asyncio.run(loop.hit("key", 3)).remaining for loop in loops] == [5, 2]
    assert plain.peek("key").remaining == 2
    assert not plain.hit("key", 3)


def test_a_password_in_a_url_is_not_shown() -> None:
    with pytest.raises(StoreURLError) as caught:
        RateLimiter("1/s", store="redos://user:s3cret@host/0")
    assert "s3cret" not in str(caught.value)
    assert "did you mean 'redis://'" in str(caught.value)
    assert "redos://***@host/0" in str(caught.value)
