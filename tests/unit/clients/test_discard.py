"""How much of a denial is read, and for how long."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from headgate.clients import RetryPolicy
from headgate.clients.caller import MAX_BYTES, MAX_SECONDS, DiscardBudget
from headgate.testing import ManualClock
from tests.support.httpx_clients import URL, Blocking, Body, Service, kinds, since

if TYPE_CHECKING:
    from collections.abc import Iterator


class Ready(Service):
    """Sends these responses one after the other."""

    def __init__(self, clock: ManualClock, *responses: httpx.Response) -> None:
        super().__init__(clock)
        self.responses = list(responses)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        super().__call__(request)
        return self.responses.pop(0)


class Drip(Body):
    """A body that comes slowly, a chunk each 0.25 seconds."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(1_000)
        self._clock = clock

    def __iter__(self) -> Iterator[bytes]:
        for _ in super().__iter__():
            self._clock.advance(0.25)
            yield b"x"


def denial(**options: Any) -> httpx.Response:
    return httpx.Response(429, headers={"Retry-After": "5"}, **options)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000_000)


@kinds
@pytest.mark.parametrize("options", [{}, {"content": b"denied"}, {"json": {"error": 1}}])
def test_a_denial_that_has_been_read_is_asked_for_again(
    kind: str, options: dict[str, Any], clock: ManualClock
) -> None:
    """As `httpx.MockTransport`, fakes of other packages and caches give them."""
    service = Ready(clock, denial(**options), httpx.Response(200, content=b"served"))
    with Blocking(kind, service) as client:
        assert client.request("GET", URL).content == b"served"
    assert since(service) == [0, 5]


@kinds
def test_a_denial_that_comes_slowly_is_closed_and_that_time_is_part_of_the_wait(
    kind: str, clock: ManualClock
) -> None:
    drip = Drip(clock)
    service = Ready(clock, denial(stream=drip), httpx.Response(200))
    with Blocking(kind, service) as client:
        assert client.request("GET", URL).status_code == 200
    assert (1_000 - drip.left, drip.closed) == (4 * MAX_SECONDS, True)
    assert since(service) == [0, 5]


@kinds
def test_it_is_read_for_no_longer_than_the_call_may_wait(kind: str, clock: ManualClock) -> None:
    drip = Drip(clock)
    response = httpx.Response(503, headers={"Retry-After": "0.5"}, stream=drip)
    service = Ready(clock, response, httpx.Response(200))
    with Blocking(kind, service, retry=RetryPolicy(max_wait=0.5)) as client:
        assert client.request("GET", URL).status_code == 200
    assert since(service) == [0, 0.5]


@kinds
def test_what_reading_takes_counts_as_waiting(kind: str, clock: ManualClock) -> None:
    soon = {"Retry-After": "0.25"}
    answers = [httpx.Response(503, headers=soon, stream=Drip(clock)) for _ in range(9)]
    service = Ready(clock, *answers)
    policy = RetryPolicy(max_wait=2, max_attempts=9)
    with Blocking(kind, service, retry=policy) as client:
        assert client.request("GET", URL).status_code == 503
    assert since(service) == [0, 1, 2]


def test_so_many_bytes_are_read_and_for_so_long(clock: ManualClock) -> None:
    allowance = DiscardBudget(60, clock)
    assert allowance.allows_more(MAX_BYTES)
    assert not allowance.allows_more(1)
    allowance = DiscardBudget(0.5, clock)
    assert allowance.allows_more()
    clock.advance(0.5)
    assert not allowance.allows_more()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(30)
        yield ours, theirs


def test_a_read_that_blocks_ends(
    pair: tuple[socket.socket, socket.socket], clock: ManualClock
) -> None:
    with DiscardBudget(0.01, clock).watch(pair[0]):
        assert pair[0].recv(1) == b""


def test_a_socket_is_left_alone_after_the_watch(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    """Even if the timer goes off at that very moment: another call may have it by then."""
    timers: list[Any] = []

    class Timer:
        def __init__(self, seconds: float, function: Any) -> None:
            self.function = function
            timers.append(self)

        def start(self) -> None:
            """Not by itself."""

        cancel = start

    monkeypatch.setattr("threading.Timer", Timer)
    with DiscardBudget(1, clock).watch(pair[0]):
        pass
    timers[0].function()
    pair[1].send(b"x")
    assert pair[0].recv(1) == b"x"


def test_what_is_no_socket_is_not_watched(clock: ManualClock) -> None:
    with DiscardBudget(1, clock).watch(None):
        pass
