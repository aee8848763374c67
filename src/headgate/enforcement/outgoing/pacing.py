"""The pace of outgoing calls: from an option to limits that space them evenly.

A limit on what others send lets a burst through, which is kind to them. What is sent to others is
better spaced: their limit may be a window that began earlier than ours, and a burst at its end and
another at the start of the next is how polite clients get refused. So a plain rate is a leaky
bucket of 1 here:

    "10/s"                  one call every 100 ms
    "10/s burst 5"          five at once after a rest, else one every 100 ms
    "10/s token_bucket"     an algorithm that is named is taken as it is; so is a Limit
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.errors import OptionError
from headgate.limits import Concurrency, LeakyBucket, Limit, TokenBucket, parse_limits

if TYPE_CHECKING:
    from collections.abc import Iterable

NAMESPACE = "outgoing"
"""Whose counters those of outgoing calls are, if nothing else is said."""


def read_pace(pace: str | Limit | Iterable[str | Limit]) -> tuple[Limit, ...]:
    """The limits that *pace* means. Raises `LimitError` or `OptionError` if it means none."""
    if isinstance(pace, str):
        pairs = zip(parse_limits(pace), pace.split(";"), strict=True)
        return tuple(_spaced(limit, text) for limit, text in pairs)
    if isinstance(pace, Concurrency):
        raise OptionError(
            f"the pace is '{pace}', which is no pace; expected a rate, such as '10/s'"
        )
    if isinstance(pace, Limit):
        return (pace,)
    if isinstance(pace, bytes | dict) or not hasattr(pace, "__iter__"):
        raise OptionError(
            f"the pace is {pace!r}; expected text such as '10/s', a Limit, "
            "or a RateLimiter (an AsyncRateLimiter in an async client)"
        )
    limits = tuple(limit for item in pace for limit in read_pace(item))
    if not limits:
        raise OptionError("the pace is empty; expected a rate such as '10/s', or None for no pace")
    return limits


def _spaced(limit: Limit, text: str) -> Limit:
    words = text.lower().replace("-", "_")
    if not isinstance(limit, TokenBucket) or "token_bucket" in words:
        return limit
    return LeakyBucket(limit.capacity if "burst" in words else 1, limit.refill_rate)
