"""What an answer says of limits: was the request refused by one, and for how long to send nothing.

    field                                       read as
    Retry-After                                 seconds or a date; wins over all below
    RateLimit: "name";r=0;t=12                  draft 8 to 11: nothing left for 12 seconds
    RateLimit: limit=9, remaining=0, reset=12   draft 7
    RateLimit-Remaining, -Reset                 drafts 3 to 6; X-RateLimit-, X-Rate-Limit-
    ...-Remaining-Requests, -Reset-Requests     and -Tokens: `1s`, `6m0s`, a date

A number below 10^9 is seconds from now, a larger one the time of day in seconds or milliseconds
since the epoch: servers disagree, but no wait is 31 years long. The time of day is the server's own
if it tells it (`Date`), so that a client whose clock is wrong waits no less and no longer.

Pure, and nothing that a server sends raises: a field that cannot be read is ignored.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from fractions import Fraction
from itertools import compress, islice
from typing import TYPE_CHECKING, Final

from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

Field = Callable[[str], str | None]
"""The value of a header field by its name in any case, lines joined by commas; None if absent."""

LONGEST_FIELD: Final = 1_024
"""Characters; a longer field is ignored."""

MOST_ITEMS: Final = 16
"""Items of a field that are read; those after them are ignored."""

_EPOCH_SECONDS: Final = 10**9
_EPOCH_MILLISECONDS: Final = 10**12
_NUMBER: Final = re.compile(r"[0-9]{1,40}(?:\.[0-9]{0,40})?")
_DURATION: Final = re.compile(r"(?:[0-9]{1,15}(?:\.[0-9]{1,15})?(?:h|ms|m|s))+")
_DURATION_PART: Final = re.compile(r"([0-9.]+)(h|ms|m|s)")
_UNITS: Final = {"h": 3_600 * SECOND, "m": 60 * SECOND, "s": SECOND, "ms": MILLISECOND}

_COMMA: Final = re.compile(
    r"(?<!day)(?<!Mon)(?<!Tue)(?<!Wed)(?<!Thu)(?<!Fri)(?<!Sat)(?<!Sun),", re.IGNORECASE
)
"""One between items; that of a date is after the name of a day."""

_ITEM: Final = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*"?)+')
_NAMED: Final = re.compile(r'\s*(?:"(?:[^"\\]|\\.)*"|[A-Za-z*][^\s,;="]*)\s*(;.*)')
_PARAMETER: Final = re.compile(r';\s*([a-z*][a-z0-9_.*-]*)=("(?:[^"\\]|\\.)*"|[^;"]*)')
_MEMBER: Final = re.compile(r"\s*(remaining|reset)=([0-9]{1,15})\s*(?:;.*)?")
_WHOLE: Final = re.compile("[0-9]{1,15}")

_PAIRS: Final = (
    ("ratelimit-remaining", ("ratelimit-reset",)),
    ("x-ratelimit-remaining", ("x-ratelimit-reset-after", "x-ratelimit-reset")),
    ("x-rate-limit-remaining", ("x-rate-limit-reset",)),
    ("x-ratelimit-remaining-requests", ("x-ratelimit-reset-requests",)),
    ("x-ratelimit-remaining-tokens", ("x-ratelimit-reset-tokens",)),
    ("anthropic-ratelimit-requests-remaining", ("anthropic-ratelimit-requests-reset",)),
    ("anthropic-ratelimit-tokens-remaining", ("anthropic-ratelimit-tokens-reset",)),
)
"""What is left, and the fields that tell until when, the more exact ones first."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The part of a response that matters here."""

    status: int
    field: Field


@dataclass(frozen=True, slots=True)
class Signal:
    """What an answer says. *refused*: it was not served, and another time it may be.

    *wait_ns*: send nothing for so long; None if it names no time.
    """

    refused: bool
    wait_ns: int | None


def read_signal(answer: Answer, time_ns: int) -> Signal:
    """What *answer* says, at *time_ns* by our own clock, in nanoseconds since the epoch.

    429 and 503 are refusals. So is a 403 that names a time: that is how GitHub answers those who
    are over a limit. `Retry-After` on any other answer is advice about that one resource, such as
    when to ask again for the result of a 202, and closes nothing.
    """
    field, status = answer.field, answer.status
    now_ns = _server_time_ns(field, time_ns)
    if status in (403, 429, 503):
        said = _value(field, "retry-after")
        wait_ns = None if said is None else _latest(said, now_ns)
        if wait_ns is not None:
            return Signal(refused=True, wait_ns=wait_ns)
    waits = [] if _is_from_a_cache(field) else list(_waits(field, now_ns, refused=status == 429))
    refused = status in (429, 503) or (status == 403 and bool(waits))
    return Signal(refused, max(waits, default=None))


def wait_until_ns(text: str, now_ns: int) -> int | None:
    """Nanoseconds from *now_ns* to the moment that *text* names; 0 if it is over, None if none."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return _by_size(Fraction(text), now_ns)
    if _DURATION.fullmatch(text):
        parts = _DURATION_PART.findall(text)
        return math.ceil(sum(Fraction(number) * _UNITS[unit] for number, unit in parts))
    moment_ns = _date_ns(text)
    return None if moment_ns is None else max(moment_ns - now_ns, 0)


def _by_size(number: Fraction, now_ns: int) -> int:
    if number < _EPOCH_SECONDS:
        return math.ceil(number * SECOND)
    unit = SECOND if number < _EPOCH_MILLISECONDS else MILLISECOND
    return max(math.ceil(number * unit) - now_ns, 0)


def _latest(text: str, now_ns: int) -> int | None:
    """As `wait_until_ns`; of a field that was sent more than once, the longest wait."""
    waits = [wait_until_ns(item, now_ns) for item in _items(text)]
    return max((wait for wait in waits if wait is not None), default=None)


def _items(text: str) -> list[str]:
    return _COMMA.split(text, MOST_ITEMS)[:MOST_ITEMS]


def _date_ns(text: str) -> int | None:
    """An HTTP-date, in any of its three forms, or RFC 3339, in nanoseconds since the epoch."""
    try:
        moment = datetime.fromisoformat(text) if text[:1].isdigit() else parsedate_to_datetime(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return math.ceil(moment.timestamp() * 1_000) * MILLISECOND
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _value(field: Field, name: str) -> str | None:
    value = field(name)
    return value if value and len(value) <= LONGEST_FIELD else None


def _server_time_ns(field: Field, time_ns: int) -> int:
    text = _value(field, "date")
    said = _date_ns(text.strip()) if text else None
    return time_ns if said is None else said


def _is_from_a_cache(field: Field) -> bool:
    """Whether what it says of limits was said to somebody else, some time ago."""
    age = (_value(field, "age") or "").strip()
    return bool(_WHOLE.fullmatch(age)) and int(age) > 0


def _waits(field: Field, now_ns: int, *, refused: bool) -> Iterator[int]:
    """For how long each limit that has nothing left has nothing left."""
    value = _value(field, "ratelimit")
    if value:
        yield from _structured(value)
    for remaining, resets in _PAIRS:
        left = _value(field, remaining)
        if left is None and not refused:
            continue
        reset = next(filter(None, (_value(field, name) for name in resets)), None)
        if reset is not None:
            yield from _paired("0" if left is None else left, reset, now_ns)


def _structured(value: str) -> Iterator[int]:
    members: dict[str, int] = {}
    for found in islice(_ITEM.finditer(value), MOST_ITEMS):
        item = found[0]
        if member := _MEMBER.fullmatch(item):
            members[member[1]] = int(member[2])
        elif named := _NAMED.fullmatch(item):
            parameters = {name: text.strip() for name, text in _PARAMETER.findall(named[1])}
            left, seconds = parameters.get("r", ""), parameters.get("t", "")
            if _is_zero(left) and _WHOLE.fullmatch(seconds):
                yield int(seconds) * SECOND
    if members.get("remaining") == 0 and "reset" in members:
        yield members["reset"] * SECOND


def _paired(remaining: str, reset: str, now_ns: int) -> Iterator[int]:
    """The waits of one limit, or of several in a row: `0, 499` and `1, 3600`.

    If there are more of the one than of the other, nobody knows which is whose: all are.
    """
    used_up = [_is_zero(left) for left in _items(remaining)]
    if not any(used_up):
        return
    resets = _items(reset)
    if len(used_up) != len(resets):
        used_up = [True] * len(resets)
    for item in compress(resets, used_up):
        wait_ns = wait_until_ns(item, now_ns)
        if wait_ns is not None:
            yield wait_ns


def _is_zero(text: str) -> bool:
    text = text.strip()
    return bool(_NUMBER.fullmatch(text)) and not Fraction(text)
