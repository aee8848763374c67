"""Limits and waits as people say them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from headgate.limits import (
    Concurrency,
    FixedWindow,
    LeakyQueue,
    Limit,
    SlidingWindowCounter,
    TokenBucket,
    parse_limit,
)
from headgate.responses.bodies import limit_in_words, wait_in_words

LIMITS: list[tuple[str | Limit, str]] = [
    ("100/minute", "100 per minute"),
    ("60/minute", "60 per minute"),
    ("1/s", "1 per second"),
    ("10/s burst 50", "10 per second, up to 50 at once"),
    ("100/minute burst 200", "100 per minute, up to 200 at once"),
    ("10/s burst 1", "10 per second, up to 1 at once"),
    ("100/hour gcra", "100 per hour"),
    ("1 per 7 seconds", "1 per 7 seconds"),
    ("100 per 1.5 seconds", "100 per 1.5 seconds"),
    ("90/minute burst 1", "90 per minute, up to 1 at once"),
    (TokenBucket(100, 1.67), "6012 per hour, up to 100 at once"),
    (TokenBucket(7, Fraction(1, 604_801)), "7 per 4233607 seconds"),
    ("5 per 15 minutes fixed_window", "5 per 15 minutes"),
    ("1000/day fixed_window", "1000 per day"),
    ("36 per 36 hours fixed_window", "36 per 36 hours"),
    ("2 per 2 weeks fixed_window", "2 per 2 weeks"),
    ("5/ms fixed_window", "5 per millisecond"),
    ("5/100ms sliding_window_log", "5 per 100 milliseconds"),
    (FixedWindow(5, 2.5), "5 per 2.5 seconds"),
    (SlidingWindowCounter(5, 0.000_25), "5 per 0.25 milliseconds"),
    (Concurrency(20, 30), "20 at the same time"),
    (LeakyQueue(10, 100), "10 per second, one after the other, with up to 100 waiting"),
    (LeakyQueue(10, 100, 5), "10 per second, one after the other, with up to 50 waiting"),
    (LeakyQueue(Fraction(1, 2), 0), "30 per minute, one after the other"),
    (
        LeakyQueue(Fraction(3, 86_401), 1),
        "3 per 86401 seconds, one after the other, with up to 1 waiting",
    ),
]


@pytest.mark.parametrize(("limit", "words"), LIMITS)
def test_a_limit_reads_like_one_that_a_person_wrote(limit: str | Limit, words: str) -> None:
    assert limit_in_words(parse_limit(limit) if isinstance(limit, str) else limit) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (1, "1 second"),
        (119, "119 seconds"),
        (120, "2 minutes"),
        (121, "3 minutes"),
        (7_200, "2 hours"),
        (90_000, "25 hours"),
        (172_801, "3 days"),
    ],
)
def test_a_wait_is_rounded_up_to_what_one_can_picture(seconds: int, words: str) -> None:
    assert wait_in_words(seconds) == words
