"""Until when a destination is closed, and how many are remembered."""

from headgate.clients import Backoff, Courtesy, Destinations
from headgate.clients.host_state import Destination
from headgate.clients.signals import Signal
from headgate.units import SECOND

SERVED = Signal(refused=False, wait_ns=None)


def refused(seconds: int | None) -> Signal:
    return Signal(refused=True, wait_ns=None if seconds is None else seconds * SECOND)


def test_it_is_closed_for_as_long_as_the_server_says() -> None:
    destination = Destination(Courtesy())
    destination.hear(429, refused(5), SECOND, 0.0)
    assert destination.closure == (6 * SECOND, 5 * SECOND, 1)


def test_a_shorter_wait_does_not_open_it_earlier() -> None:
    destination = Destination(Courtesy())
    destination.hear(429, refused(60), 0, 0.0)
    destination.hear(429, refused(1), SECOND, 0.0)
    destination.hear(200, SERVED, SECOND, 0.0)
    assert destination.closure == (60 * SECOND, 60 * SECOND, 1)


def test_a_herd_that_is_refused_together_is_one_refusal() -> None:
    destination = Destination(Courtesy())
    for n in range(40):
        destination.hear(429, refused(1), n, 0.0)
    assert destination.closure.refusals == 1
    destination.hear(429, refused(1), 2 * SECOND, 0.0)
    assert destination.closure.refusals == 2


def test_refusals_are_forgotten_when_it_serves_again() -> None:
    destination = Destination(Courtesy())
    destination.hear(429, refused(1), 0, 0.0)
    destination.hear(200, SERVED, SECOND, 0.0)
    assert destination.closure.refusals == 0


def test_a_429_without_a_time_closes_for_a_part_of_the_backoff_that_grows() -> None:
    destination = Destination(Courtesy(backoff=Backoff(first=1)))
    destination.hear(429, refused(None), 0, 0.5)
    assert destination.closure.until_ns == SECOND // 2
    destination.hear(429, refused(0), SECOND, 0.5)
    assert destination.closure.until_ns == 2 * SECOND


def test_a_503_without_a_time_closes_nothing() -> None:
    destination = Destination(Courtesy())
    destination.hear(503, refused(None), 0, 1.0)
    assert destination.closure.until_ns == 0


def test_a_success_with_nothing_left_closes_if_one_looks_ahead() -> None:
    last = Signal(refused=False, wait_ns=5 * SECOND)
    for look_ahead, until_ns in ((True, 5 * SECOND), (False, 0)):
        destination = Destination(Courtesy(look_ahead=look_ahead))
        destination.hear(200, last, 0, 0.0)
        assert destination.closure.until_ns == until_ns


def test_an_absurd_time_is_believed_for_so_long_and_no_longer() -> None:
    destination = Destination(Courtesy(max_closed=3_600))
    destination.hear(429, refused(10**30), 0, 0.0)
    assert destination.closure.until_ns == 3_600 * SECOND


def test_the_number_of_destinations_is_bounded_and_the_closed_are_forgotten_last() -> None:
    destinations = Destinations(Courtesy(max_destinations=3))
    closed = destinations.at("closed", 0)
    closed.hear(429, refused(60), 0, 0.0)
    for n in range(100):
        destinations.at(f"host{n}", 0)
        assert len(destinations) <= 3
    assert destinations.at("closed", 0) is closed
    assert destinations.at("host99", 0) is destinations.at("host99", 0)


def test_if_all_are_closed_the_one_that_opens_first_is_forgotten() -> None:
    destinations = Destinations(Courtesy(max_destinations=2))
    for name, seconds in (("long", 60), ("short", 5)):
        destinations.at(name, 0).hear(429, refused(seconds), 0, 0.0)
    destinations.at("new", 0)
    assert destinations.at("long", 0).closure.until_ns == 60 * SECOND
    assert destinations.at("short", 0).closure.until_ns == 0
