"""Moments as RFC 3339 writes them, with an offset, exact to the nanosecond: from text and back."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from headgate.units import SECOND

AN_INSTANT: Final = "a date and time with its offset, such as 2027-01-31T12:00:00Z"

INSTANT: Final = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}"
    r"(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_INSTANT: Final = re.compile(INSTANT)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_A_SECOND: Final = timedelta(seconds=1)
_LAST: Final = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - _EPOCH) // _A_SECOND


def instant_ns(text: str) -> int | None:
    """The moment *text* in nanoseconds since the epoch; None if it is none, or before 1970."""
    found = _INSTANT.fullmatch(text)
    if found is None:
        return None
    fraction = found[1] or "."
    try:
        whole = datetime.fromisoformat(text[:19] + found[2].upper())
    except ValueError:  # the 30th of February
        return None
    since = (whole - _EPOCH) // _A_SECOND
    if not 0 <= since <= _LAST:
        return None
    return since * SECOND + int(fraction[1:].ljust(9, "0"))


def instant_text(since_epoch_ns: int) -> str:
    """The moment as text, in UTC; its fraction of a second only if it has one."""
    seconds, rest = divmod(since_epoch_ns, SECOND)
    whole = (_EPOCH + seconds * _A_SECOND).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{whole}{fraction}Z"
