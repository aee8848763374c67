"""One request through its waits and attempts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.clients import Backoff, Courtesy, NotSentError
from headgate.clients.attempt import Journey
from headgate.clients.host_state import Destination
from headgate.clients.signals import Answer, Signal, read_signal
from headgate.units import SECOND


def answer(status: int, **headers: str) -> Answer:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, fields.get)


class Trip:
    """A journey, and a clock that moves only when it waits."""

    def __init__(
        self,
        courtesy: Courtesy | None = None,
        *,
        destination: Destination | None = None,
        repeatable: bool = True,
        chance: float = 0.0,
        now_ns: int = 0,
    ) -> None:
        courtesy = courtesy or Courtesy()
        self.destination = destination or Destination(courtesy)
        self.journey = Journey(
            "~key",
            self.destination,
            courtesy,
            lambda: chance,
            origin="https://a:443",
            repeatable=repeatable,
        )
        self.now_ns = now_ns

    def wait(self) -> float:
        """Wait until it may be sent; how many seconds that took."""
        began_ns = self.now_ns
        while pause_ns := self.journey.pause_ns(self.now_ns):
            self.now_ns += pause_ns
            self.journey.add_wait(self.now_ns - pause_ns, self.now_ns)
        return (self.now_ns - began_ns) / SECOND

    def hear(self, heard: Answer) -> bool:
        """Send it, and hear that; whether it is to be sent again."""
        self.journey.set_out(self.now_ns)
        return self.journey.heard(heard, self.now_ns, self.now_ns)


def test_a_request_to_an_open_destination_goes_at_once() -> None:
    assert Trip().wait() == 0


@pytest.mark.parametrize("status", [200, 304, 400, 401, 403, 404, 500, 502, 504])
def test_an_answer_that_is_no_refusal_is_final(status: int) -> None:
    assert not Trip().hear(answer(status))


@pytest.mark.parametrize("status", [429, 503])
def test_a_refused_request_is_sent_again_when_the_server_said(status: int) -> None:
    trip = Trip()
    assert trip.hear(answer(status, retry_after="7"))
    assert trip.wait() == 7


def test_it_is_sent_so_often_and_no_more() -> None:
    trip = Trip(Courtesy(max_attempts=4))
    repeats = [trip.hear(answer(429, retry_after="1")) for _ in range(5)]
    assert repeats == [True, True, True, False, False]


def test_one_that_may_not_be_repeated_is_not_but_others_wait_for_it() -> None:
    trip = Trip(repeatable=False)
    assert not trip.hear(answer(429, retry_after="7"))
    assert Trip(destination=trip.destination).wait() == 7


def test_others_wait_after_a_success_that_was_the_last() -> None:
    trip = Trip()
    assert not trip.hear(answer(200, ratelimit='"a";r=0;t=3'))
    assert Trip(destination=trip.destination).wait() == 3


def test_they_come_back_apart_and_never_early() -> None:
    first = Trip()
    first.hear(answer(429, retry_after="10"))
    chances = [n / 10 for n in range(10)]
    waits = [Trip(destination=first.destination, chance=chance).wait() for chance in chances]
    assert waits == sorted(set(waits))
    assert min(waits) == 10


def test_one_that_waits_when_it_closes_anew_waits_on() -> None:
    trip = Trip()
    trip.hear(answer(429, retry_after="5"))
    pause_ns = trip.journey.pause_ns(0)
    trip.destination.hear(429, read(answer(429, retry_after="9")), 2 * SECOND, 0.0)
    trip.now_ns = pause_ns
    assert trip.wait() == 6


def read(heard: Answer) -> Signal:
    return read_signal(heard, 0)


def test_without_a_time_it_backs_off_by_itself() -> None:
    trip = Trip(Courtesy(backoff=Backoff(first=1), max_attempts=5), chance=0.5)
    waits = []
    for _ in range(3):
        assert trip.hear(answer(503))
        waits.append(trip.wait())
    assert waits == [0.5, 1, 2]
    assert Trip(destination=trip.destination).wait() == 0


def test_a_wait_too_long_gives_the_answer_back_and_later_calls_are_not_sent() -> None:
    courtesy = Courtesy(max_wait=10)
    trip = Trip(courtesy)
    assert not trip.hear(answer(429, retry_after="11"))
    with pytest.raises(NotSentError, match="not sent to https://a:443: the server said") as caught:
        Trip(courtesy, destination=trip.destination).wait()
    assert (caught.value.retry_after, caught.value.cause) == (11, "closed")


def test_all_waits_of_a_call_count_together() -> None:
    trip = Trip(Courtesy(max_wait=10, max_attempts=9))
    for _ in range(2):
        assert trip.hear(answer(429, retry_after="4"))
        trip.wait()
    assert trip.journey.patience == 2
    assert not trip.hear(answer(429, retry_after="4"))


def test_a_spread_never_makes_a_wait_too_long() -> None:
    courtesy = Courtesy(max_wait=10)
    trip = Trip(courtesy, chance=1.0)
    assert trip.hear(answer(429, retry_after="10"))
    assert trip.wait() == 10


def test_the_budget_bounds_retries() -> None:
    courtesy = Courtesy(retry_share=0, retries_per_second=0.3)
    destination = Destination(courtesy)
    trips = [Trip(courtesy, destination=destination) for _ in range(10)]
    assert sum(trip.hear(answer(503)) for trip in trips) == 3


def test_only_what_was_sent_earns_retries() -> None:
    courtesy = Courtesy(max_wait=1, retry_share=1, retries_per_second=0)
    destination = Destination(courtesy)
    destination.hear(429, Signal(refused=True, wait_ns=5 * SECOND), 0, 0.0)
    for _ in range(10):
        with pytest.raises(NotSentError):
            Trip(courtesy, destination=destination).wait()
    assert not destination.take_retry(0)
    Trip(courtesy, destination=destination).hear(answer(200))
    assert destination.take_retry(0)


def test_one_that_was_sent_and_refused_says_that_it_is_not_sent_again() -> None:
    trip = Trip(Courtesy(max_wait=10))
    assert trip.hear(answer(503, retry_after="1"))
    trip.destination.hear(429, Signal(refused=True, wait_ns=60 * SECOND), 0, 0.0)
    with pytest.raises(NotSentError, match=r"^not sent again to https://a:443: the ") as caught:
        trip.wait()
    assert caught.value.attempts == 1


@given(
    said=st.lists(st.integers(0, 20), min_size=1, max_size=8),
    chance=st.floats(0, 1),
    max_wait=st.integers(0, 60),
)
def test_it_never_comes_early_and_never_waits_too_long(
    said: list[int], chance: float, max_wait: int
) -> None:
    courtesy = Courtesy(max_wait=max_wait, max_attempts=9)
    trip = Trip(courtesy, chance=chance)
    for seconds in said:
        if not trip.hear(answer(429, retry_after=str(seconds))):
            break
        assert trip.wait() >= seconds
    assert trip.now_ns <= max_wait * SECOND
