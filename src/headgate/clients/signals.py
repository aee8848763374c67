"""Rate-limit signals of a response: was the request denied, and who has to wait for how long.

    field                                       read as
    Retry-After-Ms                              milliseconds; overrides all below
    Retry-After                                 seconds or a date; overrides all below
    RateLimit: "name";r=0;t=12                  drafts 8 to 11: nothing left for 12 seconds
    RateLimit: limit=9, remaining=0, reset=12   draft 7
    RateLimit-Policy: "name";q=9;w=60           the policies that apply to this path
    RateLimit-Remaining, -Reset                 drafts 3 to 6; X-RateLimit-, X-Rate-Limit-
    X-RateLimit-Remaining-Requests, -Reset-...  and -Tokens, of OpenAI: `120ms`, `6m0s`
    Anthropic-RateLimit-Requests-Remaining, ... and -Tokens, -Input-Tokens, -Output-Tokens: a date
    X-RateLimit-Bucket, X-RateLimit-Resource    the name of the limit in the fields above

A number below 10^9 is seconds from now, a larger one a time in seconds or milliseconds since the
epoch: servers disagree, but no wait is 31 years long. Times are compared with the server's `Date`
if there is one, so that a client whose clock is wrong waits neither less nor longer.

`t` is in whole seconds, rounded up. If `X-RateLimit-Reset`, by a client clock that agrees with
`Date`, falls into the last of these seconds, it is the more exact wait.

Pure, and no field raises: one that cannot be read is ignored.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from fractions import Fraction
from itertools import compress, islice
from typing import TYPE_CHECKING, Final

from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

Field = Callable[[str], str | None]
"""Return the value of a header field by its name in any case, lines joined by commas, or None."""

PATH: Final = ""
HOST: Final = "*"
"""The scopes of a wait for which the response names no policy."""

MAX_FIELD_LENGTH: Final = 1_024
"""Characters; a longer field is ignored."""

MAX_ITEMS: Final = 16
"""Items of a field that are read; further ones are ignored."""

_CLOCK_TOLERANCE_NS: Final = 2 * SECOND
"""The most by which a correct clock is ahead of `Date`, which some servers write once a second."""

_CLOCK_MARGIN_NS: Final = 5 * MILLISECOND
"""Added to a wait that is read from the client's clock."""

_EPOCH_SECONDS: Final = 10**9
_EPOCH_MILLISECONDS: Final = 10**12
_NUMBER: Final = re.compile(r"[0-9]{1,40}(?:\.[0-9]{0,40})?")
_DURATION: Final = re.compile(r"(?:[0-9]{1,15}(?:\.[0-9]{1,15})?(?:h|ms|m|s))+")
_DURATION_PART: Final = re.compile(r"([0-9.]+)(h|ms|m|s)")
_UNITS: Final = {"h": 3_600 * SECOND, "m": 60 * SECOND, "s": SECOND, "ms": MILLISECOND}

_COMMA: Final = re.compile(
    r"(?<!day)(?<!Mon)(?<!Tue)(?<!Wed)(?<!Thu)(?<!Fri)(?<!Sat)(?<!Sun),", re.IGNORECASE
)
"""A comma between items; that of a date follows the name of a day."""

_ITEM: Final = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*"?)+')
_NAMED: Final = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[A-Za-z*][^\s,;="]*)\s*(;.*)')
_PARAMETER: Final = re.compile(r';\s*([a-z*][a-z0-9_.*-]*)=("(?:[^"\\]|\\.)*"|[^;"]*)')
_MEMBER: Final = re.compile(r"\s*(remaining|reset)=([0-9]{1,15})\s*(?:;.*)?")
_WHOLE: Final = re.compile("[0-9]{1,15}")

_PAIRS: Final = (
    ("ratelimit-remaining", ("ratelimit-reset",)),
    ("x-ratelimit-remaining", ("x-ratelimit-reset-after", "x-ratelimit-reset")),
    ("x-rate-limit-remaining", ("x-rate-limit-reset",)),
    ("x-ratelimit-remaining-requests", ("x-ratelimit-reset-requests",)),
    ("x-ratelimit-remaining-tokens", ("x-ratelimit-reset-tokens",)),
    *(
        (f"anthropic-ratelimit-{name}-remaining", (f"anthropic-ratelimit-{name}-reset",))
        for name in ("requests", "tokens", "input-tokens", "output-tokens")
    ),
)
"""The field with the units left, and those with the reset, the more exact ones first."""

_BUCKETS: Final = ("x-ratelimit-bucket", "x-ratelimit-resource")


@dataclass(frozen=True, slots=True)
class ResponseInfo:
    """The status and the header fields of a response."""

    status: int
    field: Field


@dataclass(frozen=True, slots=True)
class Signal:
    """The rate-limit signals of a response.

    *is_denied*: the request was not served, and may be served later. *waits*: for how many
    nanoseconds to send nothing, by the policy that has nothing left, by `PATH` or by `HOST`; None
    if the response names no time. *policies*: all that apply to the path of the request.
    *is_by_clock*: a wait is read from the client's clock.
    """

    is_denied: bool
    waits: Mapping[str, int | None] = field(default_factory=dict)
    policies: frozenset[str] = frozenset()
    is_by_clock: bool = False


def read_signal(response: ResponseInfo, time_ns: int, *, trusts_clock: bool = True) -> Signal:
    """Read *response* at *time_ns* of the client's clock, in nanoseconds since the epoch.

    429 and 503 are denials. So is a 403 that names a time: GitHub denies with it. A 503 without a
    policy is about the whole host (RFC 9110). `Retry-After` on any other response is advice about
    that resource, such as when to fetch the result of a 202, and delays nothing.
    """
    fields, status = response.field, response.status
    server_ns = _server_time_ns(fields)
    now_ns = time_ns if server_ns is None else server_ns
    wait_ns = _retry_after_ns(fields, now_ns) if status in (403, 429, 503) else None
    waits: dict[str, int | None] = {}
    policies: frozenset[str] = frozenset()
    is_by_clock = False
    if not _is_from_cache(fields):
        policies = _policies(fields)
        waits = _exhausted(fields, now_ns, is_denied=status == 429)
        is_synchronous = server_ns is not None and 0 <= time_ns - server_ns < _CLOCK_TOLERANCE_NS
        if wait_ns is None and trusts_clock and is_synchronous:
            is_by_clock = _refine(waits, fields, time_ns)
    unnamed = HOST if status == 503 else next(iter(policies)) if len(policies) == 1 else PATH
    if wait_ns is not None:
        waits = dict.fromkeys(waits or (unnamed,), wait_ns)
    elif status == 429:
        waits = waits or {unnamed: None}
    is_denied = status in (429, 503) or (
        status == 403 and any(w is not None for w in waits.values())
    )
    if status != 429:
        waits = {scope: wait for scope, wait in waits.items() if wait}
    return Signal(is_denied, waits, policies, is_by_clock)


def _retry_after_ns(fields: Field, now_ns: int) -> int | None:
    """Return the wait that a denial asks for; None if it names none."""
    exact = (_value(fields, "retry-after-ms") or "").strip()
    if _NUMBER.fullmatch(exact):
        return math.ceil(Fraction(exact) * MILLISECOND)
    stated = _value(fields, "retry-after")
    return None if stated is None else _longest_ns(stated, now_ns)


def wait_until_ns(text: str, now_ns: int) -> int | None:
    """Return the nanoseconds from *now_ns* to the time in *text*: 0 if past, None if unreadable."""
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


def _longest_ns(text: str, now_ns: int) -> int | None:
    """Return the longest wait in a field that may have been sent more than once."""
    waits = [wait_until_ns(item, now_ns) for item in _items(text)]
    return max((wait for wait in waits if wait is not None), default=None)


def _items(text: str) -> list[str]:
    return _COMMA.split(text, MAX_ITEMS)[:MAX_ITEMS]


def _date_ns(text: str) -> int | None:
    """Read an HTTP-date, in any of its three forms, or RFC 3339, as nanoseconds since the epoch."""
    try:
        moment = datetime.fromisoformat(text) if text[:1].isdigit() else parsedate_to_datetime(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return math.ceil(moment.timestamp() * 1_000) * MILLISECOND
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _value(fields: Field, name: str) -> str | None:
    value = fields(name)
    return value if value and len(value) <= MAX_FIELD_LENGTH else None


def _server_time_ns(fields: Field) -> int | None:
    text = _value(fields, "date")
    return _date_ns(text.strip()) if text else None


def _is_from_cache(fields: Field) -> bool:
    """Return True if the rate-limit fields were for another request, some time ago."""
    age = (_value(fields, "age") or "").strip()
    return bool(_WHOLE.fullmatch(age)) and int(age) > 0


def _policies(fields: Field) -> frozenset[str]:
    """Return the policies that apply to the path of the request, exhausted or not."""
    named = [
        policy
        for name in ("ratelimit", "ratelimit-policy")
        for policy, _ in _named_items(_value(fields, name) or "")
    ]
    bucket = _bucket(fields)
    return frozenset(named or ([bucket] if bucket else []))


def _bucket(fields: Field) -> str | None:
    found = next(filter(None, (_value(fields, name) for name in _BUCKETS)), None)
    return f"bucket {found}" if found else None


def _named_items(value: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each policy of a structured field, by name and partition key, with its parameters."""
    for found in islice(_ITEM.finditer(value), MAX_ITEMS):
        if named := _NAMED.fullmatch(found[0]):
            parameters = {name: text.strip() for name, text in _PARAMETER.findall(named[2])}
            name = named[1].strip('"')
            yield f"policy {name};{parameters.get('pk', '')}", parameters


def _exhausted(fields: Field, now_ns: int, *, is_denied: bool) -> dict[str, int | None]:
    """Return the policies that have nothing left, each with the wait, or None if it is unknown.

    `RateLimit` overrides the fields without names: both are about the same limits, and its `t` is
    the time until the next unit comes back, while a reset may be the time until all are back.
    """
    value = _value(fields, "ratelimit") or ""
    found: dict[str, int | None] = {}
    is_structured = False
    for policy, parameters in _named_items(value):
        left, seconds = parameters.get("r", ""), parameters.get("t", "")
        is_structured |= bool(_WHOLE.fullmatch(left))
        if _is_zero(left):
            found[policy] = int(seconds) * SECOND if _WHOLE.fullmatch(seconds) else None
    members = {
        member[1]: int(member[2])
        for item in islice(_ITEM.finditer(value), MAX_ITEMS)
        if (member := _MEMBER.fullmatch(item[0]))
    }
    if members.get("remaining") == 0 and "reset" in members:
        found[PATH] = members["reset"] * SECOND
    if not (is_structured or members):
        waits = list(_pair_waits(fields, now_ns, is_denied=is_denied))
        if waits:
            found[_bucket(fields) or PATH] = max(waits)
    return found


def _refine(waits: dict[str, int | None], fields: Field, time_ns: int) -> bool:
    """Replace the longest of *waits* by a reset in its last second; return True if there is one."""
    longest_ns = max((wait for wait in waits.values() if wait), default=0)
    if not longest_ns:
        return False
    reset_ns = max(_pair_waits(fields, time_ns, is_denied=False), default=0)
    exact_ns = reset_ns + _CLOCK_MARGIN_NS
    if not reset_ns or not longest_ns - SECOND < exact_ns < longest_ns:
        return False
    waits.update({scope: exact_ns for scope, wait in waits.items() if wait == longest_ns})
    return True


def _pair_waits(fields: Field, now_ns: int, *, is_denied: bool) -> Iterator[int]:
    """Yield the wait of each exhausted limit of the fields that come in pairs."""
    for remaining, resets in _PAIRS:
        left = _value(fields, remaining)
        if left is None and not is_denied:
            continue
        reset = next(filter(None, (_value(fields, name) for name in resets)), None)
        if reset is not None:
            yield from _paired("0" if left is None else left, reset, now_ns)


def _paired(remaining: str, reset: str, now_ns: int) -> Iterator[int]:
    """Yield the waits of one limit, or of several in a row: `0, 499` and `1, 3600`.

    If the two have different lengths, every reset counts.
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
