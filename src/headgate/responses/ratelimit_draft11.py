"""The syntax of `RateLimit-Policy` and `RateLimit`: draft-ietf-httpapi-ratelimit-headers-11.

The draft still changes. Everything specific to it is here, and its number is in the name:

    RateLimit-Policy: "burst";q=100;w=60, "slots";q=20;qu="concurrent-requests"
    RateLimit: "burst";r=42;t=12, "slots";r=19

- `q` and `w`: `q` units in `w` seconds. `w` is the time in which a limit refills completely,
  rounded up to whole seconds, and `q` is the number of units that return in that time. `q` is the
  quota if the time is in whole seconds. Otherwise `hg-burst` is the quota, the most units at once:
  a bucket of 5 that refills 20 a second is `q=20;w=1;hg-burst=5`. For a queue, `q` is the number of
  requests that leave it in `w` seconds, and `hg-queue` is the number that may wait.
- `r`: the units that are left.
- `t`: a client may use no more than `r` units within `t` seconds. It is the time until the next
  unit returns. A sliding window that allowed knows only the time until all units have returned, so
  it sends this later time. There is no `t` if no unit is in use. Slots have neither `w` nor `t`,
  because the time at which a slot is released is unknown.
- `Retry-After` must not end before `t`. The `t` of a limit that denies is never later. A limit that
  would have allowed has no `t` in a denial if its `t` would be later.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.limits import Concurrency, LeakyQueue, PacedLimit
from headgate.units import SECOND, bounded, seconds_up

if TYPE_CHECKING:
    from headgate.limits import Limit

POLICY: Final = "RateLimit-Policy"
LIMIT: Final = "RateLimit"

_PRINTABLE: Final = re.compile(r"[ -~]*")
_STRING: Final = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
_ITEM: Final = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*"?)+')


def policy_item(name: str, limit: Limit) -> str:
    """Return the item of `RateLimit-Policy` for a *limit* called *name*."""
    if isinstance(limit, Concurrency):
        return f'{quoted(name)};q={limit.quota};qu="concurrent-requests"'
    period = limit.period_ns
    window = seconds_up(period)
    if isinstance(limit, LeakyQueue):
        leaving = bounded(int(limit.per_second * window))
        return f"{quoted(name)};q={leaving};w={window};hg-queue={limit.quota - 1}"
    sustained = bounded(limit.quota * window * SECOND // period)
    burst = "" if sustained == limit.quota else f";hg-burst={limit.quota}"
    return f"{quoted(name)};q={sustained};w={window}{burst}"


def pace_of(limit: Limit) -> tuple[int, int] | None:
    """Return in how many nanoseconds how many units come back; None if not one by one."""
    if isinstance(limit, LeakyQueue):
        rate = limit.per_second
        return rate.denominator * SECOND, rate.numerator
    return (limit.period_ns, limit.quota) if isinstance(limit, PacedLimit) else None


def without_policies(value: str, names: set[str]) -> str:
    """Return a line of either field without the policies in *names*; "" if none is left."""
    items = [item.strip() for item in _ITEM.findall(value)]
    return ", ".join(item for item in items if item and _name_of(item) not in names)


def names_in(value: str) -> set[str]:
    """Return the names of the policies in a line of either field."""
    return {name for item in _ITEM.findall(value) if (name := _name_of(item.strip())) is not None}


def quoted(text: str) -> str:
    """Return *text* as a String of RFC 9651, which has printable ASCII alone."""
    if not _PRINTABLE.fullmatch(text):
        raise OptionError(f"the name {text!r} cannot be sent; expected printable ASCII alone")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _name_of(item: str) -> str | None:
    found = _STRING.match(item)
    return re.sub(r"\\(.)", r"\1", found[1]) if found else None
