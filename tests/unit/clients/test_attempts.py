"""The waits and attempts of one request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.clients import Backoff, RetryPolicy
from headgate.clients.caller import Attempts, RequestInfo
from headgate.clients.host_state import HostState
from headgate.clients.signals import PATH, ResponseInfo, Signal
from headgate.units import SECOND


def response(status: int, **headers: str) -> ResponseInfo:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return ResponseInfo(status, fields.get)


def request(method: str = "GET", key: str | None = None, *, replayable: bool = True) -> RequestInfo:
    return RequestInfo("https://a:443", "/path", method, key, replayable)


def closing(seconds: int) -> Signal:
    return Signal(is_denied=True, waits={PATH: seconds * SECOND})


class Trip:
    """The attempts of one request, and a clock that moves only when it waits."""

    def __init__(
        self,
        policy: RetryPolicy | None = None,
        *,
        host: HostState | None = None,
        method: str = "GET",
        random: float = 0.0,
    ) -> None:
        policy = policy or RetryPolicy()
        self.host = host or HostState(policy)
        self.attempts = Attempts(request(method), self.host, policy, lambda: random)
        self.now_ns = 0

    def wait(self) -> float | None:
        """Wait until it may be sent; return the seconds, or None if they are too many."""
        began_ns = self.now_ns
        while pause_ns := self.attempts.pause_ns(self.now_ns):
            self.now_ns += pause_ns
            self.attempts.add_wait(self.now_ns - pause_ns, self.now_ns)
        return None if pause_ns is None else (self.now_ns - began_ns) / SECOND

    def send(self, response: ResponseInfo) -> bool:
        """Send it and get that response; return True if it is to be sent again."""
        self.attempts.begin(self.now_ns)
        return self.attempts.record(response, self.now_ns, self.now_ns)


def test_a_request_to_an_open_host_goes_at_once() -> None:
    assert Trip().wait() == 0


@pytest.mark.parametrize("status", [200, 304, 400, 401, 403, 404, 500, 502, 504])
def test_a_response_that_is_no_denial_is_final(status: int) -> None:
    assert not Trip().send(response(status))


@pytest.mark.parametrize("status", [429, 503])
def test_a_denied_request_is_sent_again_when_the_server_said(status: int) -> None:
    trip = Trip()
    assert trip.send(response(status, retry_after="7"))
    assert trip.wait() == 7


def test_it_is_sent_so_often_and_no_more() -> None:
    trip = Trip(RetryPolicy(max_attempts=4))
    repeats = [trip.send(response(429, retry_after="1")) for _ in range(5)]
    assert repeats == [True, True, True, False, False]


def test_one_that_may_not_be_repeated_is_not_but_others_wait_for_it() -> None:
    trip = Trip(method="POST")
    assert not trip.send(response(429, retry_after="7"))
    assert Trip(host=trip.host).wait() == 7


def test_others_wait_after_a_success_that_was_the_last() -> None:
    trip = Trip()
    assert not trip.send(response(200, ratelimit='"a";r=0;t=3'))
    assert Trip(host=trip.host).wait() == 3


def test_they_come_back_apart_and_never_early() -> None:
    first = Trip()
    first.send(response(429, retry_after="10"))
    trips = [Trip(host=first.host, random=n / 10) for n in range(10)]
    waits = [trip.wait() or 0 for trip in trips]
    assert waits == sorted(set(waits))
    assert min(waits) == 10


def test_a_call_that_waits_goes_on_waiting_if_the_server_asks_for_more() -> None:
    trip = Trip()
    trip.send(response(429, retry_after="5"))
    assert trip.attempts.pause_ns(0) == 5 * SECOND
    trip.host.record("/path", closing(9), 2 * SECOND, 0.0)
    trip.now_ns = 5 * SECOND
    assert trip.wait() == 6


def test_without_a_time_it_backs_off_by_itself() -> None:
    trip = Trip(RetryPolicy(backoff=Backoff(first=1), max_attempts=5), random=0.5)
    waits = []
    for _ in range(3):
        assert trip.send(response(503))
        waits.append(trip.wait())
    assert waits == [0.5, 1, 2]
    assert Trip(host=trip.host).wait() == 0


def test_a_wait_too_long_gives_the_response_back_and_later_calls_are_not_sent() -> None:
    policy = RetryPolicy(max_wait=10)
    trip = Trip(policy)
    assert not trip.send(response(429, retry_after="11"))
    later = Trip(policy, host=trip.host)
    assert later.wait() is None
    assert later.attempts.seconds_until_open(0) == 11


def test_all_waits_of_a_call_count_together() -> None:
    trip = Trip(RetryPolicy(max_wait=10, max_attempts=9))
    for _ in range(2):
        assert trip.send(response(429, retry_after="4"))
        trip.wait()
    assert trip.attempts.time_left == 2
    assert not trip.send(response(429, retry_after="4"))


def test_a_spread_never_makes_a_wait_too_long() -> None:
    policy = RetryPolicy(max_wait=10)
    trip = Trip(policy, random=1.0)
    assert trip.send(response(429, retry_after="10"))
    assert trip.wait() == 10


def test_the_budget_bounds_retries() -> None:
    policy = RetryPolicy(retry_share=0, retries_per_second=0.3)
    host = HostState(policy)
    trips = [Trip(policy, host=host) for _ in range(10)]
    assert sum(trip.send(response(503)) for trip in trips) == 3


def test_only_what_was_sent_earns_retries() -> None:
    policy = RetryPolicy(max_wait=1, retry_share=1, retries_per_second=0)
    host = HostState(policy)
    host.record("/path", closing(5), 0, 0.0)
    for _ in range(10):
        assert Trip(policy, host=host).wait() is None
    assert not host.take_retry(0)
    Trip(policy, host=host).send(response(200))
    assert host.take_retry(0)


@given(
    said=st.lists(st.integers(0, 20), min_size=1, max_size=8),
    random=st.floats(0, 1),
    max_wait=st.integers(0, 60),
)
def test_it_never_comes_early_and_never_waits_too_long(
    said: list[int], random: float, max_wait: int
) -> None:
    policy = RetryPolicy(max_wait=max_wait, max_attempts=9)
    trip = Trip(policy, random=random)
    for seconds in said:
        if not trip.send(response(429, retry_after=str(seconds))):
            break
        waited = trip.wait()
        assert waited is not None
        assert waited >= seconds
    assert trip.now_ns <= max_wait * SECOND


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"])
def test_an_idempotent_method_may_be_retried(method: str) -> None:
    assert request(method).may_be_retried


@pytest.mark.parametrize("method", ["POST", "PATCH", "CONNECT", "LOCK", "post", ""])
def test_any_other_may_not(method: str) -> None:
    assert not request(method).may_be_retried


@pytest.mark.parametrize("method", ["POST", "PATCH", "LOCK"])
def test_an_idempotency_key_makes_any_method_retryable(method: str) -> None:
    assert request(method, '"order-17"').may_be_retried


@pytest.mark.parametrize("key", ["", "  ", '""'])
def test_an_empty_key_is_none(key: str) -> None:
    assert not request("POST", key).may_be_retried


@pytest.mark.parametrize(("method", "key"), [("PUT", None), ("POST", "order-17")])
def test_a_body_that_is_gone_cannot_be_retried(method: str, key: str | None) -> None:
    assert not request(method, key, replayable=False).may_be_retried
