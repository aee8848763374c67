"""Clients that heed what responses say of the queue, and clients that do not."""

from functools import cache

from scripts.pictures.overload.client_backoff import Careless, Course, Heedful, Plot, play

PLOT = Plot(clients=5, slots=20, usual=50, more=150, begin=2, end=7, until=16)
"""The app does 100 a second."""


@cache
def course(*, heeds: bool) -> Course:
    return play(PLOT, Heedful if heeds else Careless)


def test_who_heeds_nothing_is_refused_and_waits_for_as_long_as_it_is_let_wait() -> None:
    careless = course(heeds=False)
    assert careless.rate(careless.refused, 4, 7) > 100
    assert careless.wait(4, 7) > 0.7 * PLOT.max_wait
    assert careless.given_up > 0.1 * careless.jobs


def test_who_heeds_what_it_is_told_is_hardly_ever_refused_and_waits_little() -> None:
    heedful = course(heeds=True)
    assert sum(heedful.refused.values()) < 0.01 * heedful.jobs
    assert heedful.wait(4, 7) < 2 * Heedful.AIM
    assert sum(heedful.done.values()) > 0.97 * heedful.jobs


def test_the_app_does_all_it_can_in_both_cases() -> None:
    for heeds in (False, True):
        found = course(heeds=heeds)
        assert found.rate(found.done, 4, 7) > 0.9 * PLOT.capacity


def test_the_same_seed_gives_the_same_course() -> None:
    assert play(PLOT, Heedful) == course(heeds=True)
