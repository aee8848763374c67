"""Times of traces, in nanoseconds since the epoch.

    1763320000, 1763320000.25      seconds; if it is larger, milli-, micro- or nanoseconds
    2026-11-16T19:06:40.25Z        ISO 8601; without a zone it is UTC
    16/Nov/2026:19:06:40 +0000     nginx and Apache

Neighbouring times are similar, so their parts are cached.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from headgate.simulator.traces.columns import InvalidLineError
from headgate.units import DAY, MICROSECOND, MILLISECOND, SECOND

_MONTHS: Final = b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_LATEST: Final = 32_503_680_000 * SECOND  # the year 3000
_FIRST_MS, _FIRST_US, _FIRST_NS = 1e11, 1e14, 1e17
"""The numbers from which a time is in milli-, micro- and nanoseconds."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(text: bytes | float) -> int:
    """Read a time. Raises `ValueError` or `OverflowError` if it is invalid."""
    try:
        if not isinstance(text, bytes):
            at_ns = _number(text)
        elif text[4:5] == b"-":
            at_ns = _second(text[:19]) + _fraction(text[19:])
        elif text[2:3] == b"/":
            at_ns = _logged(text)
        else:
            at_ns = _number(text)
    except ValueError as error:
        raise InvalidLineError(f"invalid time {shown(text)}") from error
    if 0 <= at_ns < _LATEST:
        return at_ns
    raise InvalidLineError(f"invalid time {shown(text)}: expected one from 1970 to 2999")


def _number(text: bytes | float) -> int:
    number = float(text)
    if number < _FIRST_MS:
        return round(number * 1_000_000) * MICROSECOND
    if number < _FIRST_US:
        return round(number * 1_000) * MICROSECOND
    return round(number) * MICROSECOND if number < _FIRST_NS else int(text)


@lru_cache(maxsize=4096)
def _second(text: bytes) -> int:
    return _iso(text + b"+00:00")


@lru_cache(maxsize=4096)
def _fraction(text: bytes) -> int:
    """Fraction and zone of a time, relative to UTC."""
    zone = b"Z" if text.endswith(b" UTC") else b""
    return _iso(b"1970-01-02T00:00:00" + text.removesuffix(b" UTC") + zone) - DAY


@lru_cache(maxsize=4096)
def _logged(text: bytes) -> int:
    date = b"%b-%02d-%b" % (text[7:11], _MONTHS.index(text[3:6]) + 1, text[:2])
    return _iso(b"%bT%b%b" % (date, text[12:20], text[21:26]))


def _iso(text: bytes) -> int:
    moment = datetime.fromisoformat(text.decode("ascii"))
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    return since // timedelta(microseconds=1) * MICROSECOND


@lru_cache(maxsize=4096)  # most are short, and so the same
def duration_of(text: bytes, unit_ns: int) -> int | None:
    """Read the duration of a request; None if the log has none, as with `-`.

    At most a day: a replay renews the slots of a request for as long as it takes.
    """
    if not text or text == b"-":
        return None
    for suffix, its_ns in ((b"ms", MILLISECOND), (b"us", MICROSECOND), (b"s", SECOND)):
        if text.endswith(suffix):
            text, unit_ns = text.removesuffix(suffix), its_ns
            break
    found = round(float(text) * unit_ns)
    if not 0 <= found <= DAY:
        raise InvalidLineError(f"invalid duration {shown(text)}: expected a day at most")
    return found


def shown(text: bytes | float) -> str:
    """*text* as it may be printed."""
    return ascii(text[:40].decode("utf-8", "replace")) if isinstance(text, bytes) else str(text)
