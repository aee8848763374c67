"""A pace that is a queue, and one whose store is gone."""

from __future__ import annotations

from typing import Any

import pytest

from headgate import AsyncRateLimiter, LeakyQueue, RateLimiter
from headgate.clients import NotSentError, RetryPolicy
from headgate.errors import StoreError
from headgate.stores import Store
from headgate.testing import ManualClock
from tests.support.async_stores import LoopStore
from tests.support.httpx_clients import URL, Blocking, Service, kinds, since


class GoneStore(Store):
    """Cannot be reached; knows how often that was tried."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.asked = 0

    def run(self, operation: Any) -> Any:
        self.asked += 1
        raise StoreError("gone")


class GoneAsyncStore(LoopStore):
    """The same for an event loop."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.asked = 0

    async def arun(self, operation: Any) -> Any:
        self.asked += 1
        raise StoreError("gone")


def gone(kind: str, clock: ManualClock) -> GoneStore | GoneAsyncStore:
    return GoneStore(clock) if kind == "sync" else GoneAsyncStore(clock)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000_000)


@kinds
def test_calls_wait_for_their_places_in_a_queue(kind: str, clock: ManualClock) -> None:
    service = Service(clock)
    queue, policy = LeakyQueue(rate=1, queue=5), RetryPolicy(max_wait=2)
    with Blocking(kind, service, pace=queue, retry=policy) as client:
        for _ in range(3):
            client.request("GET", URL)
    assert since(service) == [0, 1, 2]


@kinds
def test_a_place_that_comes_too_late_is_not_taken(kind: str, clock: ManualClock) -> None:
    service = Service(clock)
    limiter = (RateLimiter if kind == "sync" else AsyncRateLimiter)(
        LeakyQueue(rate=1, queue=50), clock=clock
    )
    policy = RetryPolicy(max_wait=0.5)
    with Blocking(kind, service, pace=limiter, retry=policy) as client:
        client.request("GET", URL)
        with pytest.raises(NotSentError) as caught:
            client.request("GET", URL)
        assert (caught.value.cause, caught.value.retry_after) == ("pace", 0.5)
        clock.advance(0.5)
        client.request("GET", URL)
    assert since(service) == [0, 1]


@kinds
def test_without_its_store_a_closed_queue_refuses_at_once(kind: str, clock: ManualClock) -> None:
    service, store = Service(clock), gone(kind, clock)
    options = {"store": store, "on_store_failure": "fail_closed"}
    with (
        Blocking(kind, service, pace=LeakyQueue(1, 5), **options) as client,
        pytest.raises(NotSentError, match="the store of the pace cannot be reached"),
    ):
        client.request("GET", URL)
    assert (clock.now, store.asked, service.times) == (1_000_000_000, 1, [])


@kinds
def test_without_its_store_a_closed_pace_refuses_at_once_and_says_why(
    kind: str, clock: ManualClock
) -> None:
    service, store = Service(clock), gone(kind, clock)
    options = {"store": store, "on_store_failure": "fail_closed"}
    with (
        Blocking(kind, service, pace="1/s", **options) as client,
        pytest.raises(NotSentError, match="the store of the pace cannot be reached") as caught,
    ):
        client.request("GET", URL)
    assert (caught.value.cause, caught.value.retry_after) == ("store", None)
    assert caught.value.origin == "https://api.example.com:443"
    assert (clock.now, store.asked, service.times) == (1_000_000_000, 1, [])


@kinds
def test_without_its_store_an_open_pace_is_kept_by_this_process(
    kind: str, clock: ManualClock
) -> None:
    service = Service(clock)
    with Blocking(kind, service, pace="1/s", store=gone(kind, clock)) as client:
        for _ in range(3):
            client.request("GET", URL)
    assert since(service) == [0, 1, 2]


@kinds
def test_a_limiter_of_ones_own_waits_for_its_store_and_then_says_why(
    kind: str, clock: ManualClock
) -> None:
    store: Any = gone(kind, clock)
    made = RateLimiter if kind == "sync" else AsyncRateLimiter
    limiter = made("1/s", store=store, on_store_failure="fail_closed")
    service = Service(clock)
    with (
        Blocking(kind, service, pace=limiter) as client,
        pytest.raises(NotSentError, match="on_store_failure is 'fail_closed'") as caught,
    ):
        client.request("GET", URL)
    assert (caught.value.cause, caught.value.retry_after) == ("store", None)
    assert service.times == []
