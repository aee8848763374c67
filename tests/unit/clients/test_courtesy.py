"""The options, and what is said of wrong ones."""

from typing import Any

import pytest

from headgate.clients import Backoff, Courtesy
from headgate.errors import OptionError


def test_the_defaults_are_polite() -> None:
    courtesy = Courtesy()
    assert courtesy.max_attempts == 3
    assert courtesy.max_wait_ns == 60 * 10**9
    assert courtesy == Courtesy(backoff=Backoff(0.5, 30.0))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_attempts", 0),
        ("max_attempts", 2.0),
        ("max_attempts", True),
        ("max_wait", -1),
        ("max_wait", float("nan")),
        ("max_wait", float("inf")),
        ("max_wait", None),
        ("retry_share", 1.5),
        ("retry_share", True),
        ("retries_per_second", -1),
        ("max_closed", 0),
        ("max_destinations", 0),
        ("look_ahead", 1),
        ("backoff", 0.5),
    ],
)
def test_an_option_that_makes_no_sense_is_named_with_what_is_right(name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=rf"{name} is .*; expected "):
        Courtesy(**{name: value})
