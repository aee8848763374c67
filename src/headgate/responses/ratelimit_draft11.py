"""The syntax of `RateLimit-Policy` and `RateLimit`: draft-ietf-httpapi-ratelimit-headers-11.

The draft still changes. Everything specific to it is here, and its number is in the name:

    RateLimit-Policy: "burst";q=100;w=60, "slots";q=20;qu="concurrent-requests"
    RateLimit: "burst";r=42;t=12, "slots";r=19

- `q` and `w`: so much in so many seconds. `w` is a whole number above 0: the time in which a fully
  used limit is as new, rounded up, and `q` is what comes back in that time. That is the quota
  wherever the time is in whole seconds. Where it is not, the quota, which is the most at once,
  is sent as `hg-burst`: a bucket of 5 that refills 20 a second is `q=20;w=1;hg-burst=5`. Of a
  queue, `q` is what leaves it in that time, and `hg-queue` is how many may wait.
- `r`: what is left.
- `t`: no more than `r` within `t` seconds. It is the time until the next unit comes back. A sliding
  window that allowed does not know that time, only when all is back: then it is that, which is
  later and so on the safe side. No unit is in use: no `t`. Slots come back when their holders
  leave, which is unknown: neither `w` nor `t`.
- `Retry-After` must not point before the end of `t`. A limit that denies never makes it do so. One
  that would have allowed, with a window that lasts longer, goes without `t` in a denial.
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
