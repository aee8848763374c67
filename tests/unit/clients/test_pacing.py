"""From the option to limits that space calls."""

from typing import Any

import pytest

from headgate.clients.caller import read_pace
from headgate.errors import LimitError, OptionError
from headgate.limits import GCRA, Concurrency, FixedWindow, LeakyBucket, Limit, TokenBucket


@pytest.mark.parametrize(
    ("pace", "limits"),
    [
        ("10/s", [LeakyBucket(1, 10)]),
        ("90/minute", [LeakyBucket(1, 1.5)]),
        ("10/s burst 5", [LeakyBucket(5, 10)]),
        ("10/s token_bucket", [TokenBucket(10, 10)]),
        ("10/s Token-Bucket burst 3", [TokenBucket(3, 10)]),
        ("10/s gcra", [GCRA(10, 10)]),
        ("10/s; 5000/h fixed_window", [LeakyBucket(1, 10), FixedWindow(5_000, 3_600)]),
        (TokenBucket(5, 10), [TokenBucket(5, 10)]),
        (["10/s", FixedWindow(5_000, 3_600)], [LeakyBucket(1, 10), FixedWindow(5_000, 3_600)]),
    ],
)
def test_a_plain_rate_is_spaced_and_what_is_named_is_taken_as_it_is(
    pace: Any, limits: list[Limit]
) -> None:
    assert read_pace(pace) == tuple(limits)


@pytest.mark.parametrize("pace", [10, [], None, b"10/s", {"10/s": 1}, Concurrency(5, 60), [3]])
def test_what_is_no_pace_is_refused(pace: Any) -> None:
    with pytest.raises(OptionError, match="pace is"):
        read_pace(pace)


def test_a_text_that_is_no_rate_is_refused_like_any_limit() -> None:
    with pytest.raises(LimitError, match="does not belong here"):
        read_pace("10/fortnight")
