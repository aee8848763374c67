"""Times of traces, in nanoseconds since the epoch.

    1763320000, 1763320000.25      seconds; if it is larger, milli-, micro- or nanoseconds
    2026-11-16T19:06:40.25Z        ISO 8601; without a zone it is UTC
    16/Nov/2026:19:06:40 +0000     nginx and Apache

Neighbouring times are similar, so parts of them are cached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from headgate.simulator.traces.formats import InvalidLineError
from headgate.units import MICROSECOND, MILLISECOND, SECOND

TimeReader = Callable[[bytes], int]
"""A function from a text to nanoseconds since the epoch; it raises `ValueError`."""

_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov"),
        start=1,
    )
} | {b"Dec": 12}
_LATEST: Final = 32_503_680_000 * SECOND  # the year 3000
_FAR: Final = ": expected one from 1970 to 2999"
_UNITS: Final = (
    (100_000_000_000, 1_000_000),
    (100_000_000_000_000, 1_000),
    (100_000_000_000_000_000, 1),
)
"""The numbers below which a time is in seconds, milli- and microseconds; the microseconds in
one."""
_SECONDS: Final = 1_000_000
_MAX_KNOWN: Final = 4096


def epoch(text: bytes | float) -> int:
    """Read a number of seconds since the epoch, or of smaller units if it is large."""
    return _since(text, *_unit(float(text)))


def seconds(text: bytes) -> int:
    """Read a number of seconds since the epoch."""
    at_ns = round(float(text) * 1_000_000) * MICROSECOND
    if 0 <= at_ns < _LATEST:
        return at_ns
    raise InvalidLineError(f"invalid time {text!r}")


def all_seconds(texts: Sequence[bytes]) -> list[int]:
    """Read many numbers of seconds at once, which takes less time."""
    found = [round(number * 1_000_000) * MICROSECOND for number in map(float, texts)]
    if found and not 0 <= min(found) <= max(found) < _LATEST:
        raise InvalidLineError("invalid time")
    return found


def _unit(number: float) -> tuple[int, int]:
    for below, micros in _UNITS:
        if number < below:
            return micros, MICROSECOND
    return 1, 1


def _since(text: bytes | float, times: int, unit_ns: int) -> int:
    at_ns = int(text) if unit_ns == 1 else round(float(text) * times) * unit_ns
    if not 0 <= at_ns < _LATEST:
        raise InvalidLineError(f"invalid time {text!r}")
    return at_ns


def iso8601() -> TimeReader:
    """Return a reader of ISO 8601."""
    starts: dict[bytes, int] = {}
    rests: dict[bytes, int] = {}

    def when(text: bytes) -> int:
        start, rest = text[:19], text[19:]
        second_ns = starts.get(start)
        if second_ns is None:
            second_ns = _remember(starts, start, _iso_ns(start + b"+00:00", text))
        rest_ns = rests.get(rest)
        if rest_ns is None:  # fraction and zone, relative to UTC
            rest_ns = _remember(rests, rest, _iso_ns(b"1970-01-02T00:00:00" + rest, text) - _DAY)
        at_ns = second_ns + rest_ns
        if 0 <= at_ns < _LATEST:
            return at_ns
        raise InvalidLineError(f"invalid time {_shown(text)}{_FAR}")

    return when


def of_access_logs() -> TimeReader:
    """Return a reader of times like `16/Nov/2026:19:06:40 +0000`."""
    last, last_ns = b"", 0

    def when(text: bytes) -> int:
        nonlocal last, last_ns
        if text != last:
            at_ns = _logged_ns(text)
            if not 0 <= at_ns < _LATEST:
                raise InvalidLineError(f"invalid time {_shown(text)}{_FAR}")
            last, last_ns = text, at_ns
        return last_ns

    return when


def reader_of(text: bytes) -> TimeReader:
    """Return a reader of times like *text*. Raises `InvalidLineError` if it is invalid."""
    try:
        unit = _unit(float(text))
    except ValueError:
        pass
    else:
        return seconds if unit[0] == _SECONDS else epoch
    for when in (iso8601(), of_access_logs()):
        try:
            when(text)
        except ValueError:
            continue
        return when
    raise InvalidLineError(f"invalid time {_shown(text)}")


_DAY: Final = 86_400 * SECOND


def _remember(known: dict[bytes, int], text: bytes, value: int) -> int:
    if len(known) >= _MAX_KNOWN:
        known.clear()
    known[text] = value
    return value


def _iso_ns(text: bytes, whole: bytes) -> int:
    if text.endswith(b" UTC"):
        text = text.removesuffix(b" UTC") + b"Z"
    try:
        moment = datetime.fromisoformat(text.decode("ascii"))
    except ValueError as error:
        raise InvalidLineError(f"invalid time {_shown(whole)}") from error
    return _since_epoch(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _logged_ns(text: bytes) -> int:
    try:
        day, month, year = int(text[:2]), _MONTHS[text[3:6]], int(text[7:11])
        clock = text[12:20].decode("ascii")
        zone = text[21:26].decode("ascii")
        moment = datetime.fromisoformat(f"{year:04}-{month:02}-{day:02}T{clock}{zone}")
        return _since_epoch(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, KeyError) as error:
        raise InvalidLineError(f"invalid time {_shown(text)}") from error


def _since_epoch(moment: datetime) -> int:
    gone = moment - _EPOCH
    return (gone.days * 86_400 + gone.seconds) * SECOND + gone.microseconds * MICROSECOND


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=4096)  # most are short, and so the same
def took_ns(text: bytes, unit_ns: int) -> int | None:
    """Read the duration of a request; None if the log has none, as with `-`."""
    if not text or text == b"-":
        return None
    for suffix, its_ns in ((b"ms", MILLISECOND), (b"us", MICROSECOND), (b"s", SECOND)):
        if text.endswith(suffix):
            text, unit_ns = text.removesuffix(suffix), its_ns
            break
    found = round(float(text) * unit_ns)
    if not 0 <= found < _LATEST:
        raise InvalidLineError(f"invalid duration {_shown(text)}")
    return found


def _shown(text: bytes) -> str:
    return ascii(text[:40].decode("utf-8", "replace"))
