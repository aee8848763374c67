"""`RateLimit-Policy` and `RateLimit` as draft-ietf-httpapi-ratelimit-headers-11 has them.

The draft still moves. All that is known of it is here, and the number of the draft is in the name:

    RateLimit-Policy: "burst";q=100;w=60, "slots";q=20;qu="concurrent-requests"
    RateLimit: "burst";r=42;t=12, "slots";r=19

- `q` and `w`: so much in so many seconds. `w` is a whole number above 0: the time in which a fully
  used limit is as new, rounded up, and `q` is what comes back in that time. That is the quota
  wherever the time is in whole seconds. Where it is not, the quota, which is the most at once,
  is told as `hg-burst`: a bucket of 5 that refills 20 a second is `q=20;w=1;hg-burst=5`. Of a
  queue, `q` is what leaves it in that time, and `hg-queue` is how many may wait.
- `r`: what is left.
- `t`: no more than `r` within `t` seconds. It is the time until the next unit comes back. A sliding
  window that admitted does not know that time, only when all is back: then it is that, which is
  later and so on the safe side. Nothing is out: no `t`. Slots come back when their holders leave,
  which nobody can foretell: neither `w` nor `t`.
- `Retry-After` must not point before the end of `t`. A limit that refuses never makes it do so. One
  that would have allowed, with a window that goes on for longer, goes without `t` in a refusal.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from headgate.decision import OVERRIDE
from headgate.errors import OptionError
from headgate.limits import Concurrency, LeakyQueue, PacedLimit
from headgate.units import SECOND, bounded, seconds_up

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.decision import Decision, Figures
    from headgate.limits import Limit
    from headgate.responses.answer import Part

POLICY: Final = "RateLimit-Policy"
LIMIT: Final = "RateLimit"

MOST_PHRASES: Final = 4096
"""How many limits are remembered in words."""

_PRINTABLE: Final = re.compile(r"[ -~]*")
_STRING: Final = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
_ITEM: Final = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*"?)+')


def policy_field(parts: Iterable[Part]) -> str:
    """The value of `RateLimit-Policy`: what the limits are. The same in every response."""
    return ", ".join([phrases_of(part.policy, part.decision.limit).policy for part in parts])


def limit_field(parts: Iterable[Part], retry_after: int | None) -> str:
    """The value of `RateLimit`: what is left of each.

    *retry_after* is the value of `Retry-After` in the same response, if it has one.
    """
    return ", ".join(
        [
            phrases_of(part.policy, part.decision.limit).item(part.decision.figures(), retry_after)
            for part in parts
        ]
    )


class Phrases:
    """What is the same in every response about the *limit* of a policy called *name*."""

    __slots__ = (
        "has_slots",
        "limit",
        "named",
        "pace",
        "policy",
        "queue",
        "quota",
        "total",
    )

    def __init__(self, name: str, limit: Limit) -> None:
        self.limit = limit
        self.policy = _policy_item(name, limit)
        self.named = f"{quoted(name)};r="
        self.quota = limit.quota
        self.total = str(limit.quota)
        self.pace = pace_of(limit)
        self.has_slots = isinstance(limit, Concurrency)
        self.queue = limit if isinstance(limit, LeakyQueue) else None

    def item(self, figures: Figures, retry_after: int | None) -> str:
        """The item of `RateLimit` about a decision with these *figures*."""
        left = figures[3]
        returns_in = self.returns_in_ns(figures)
        if returns_in is None:
            return f"{self.named}{bounded(left)}"
        window = seconds_up(returns_in)
        if retry_after is not None and window > retry_after:
            return f"{self.named}{bounded(left)}"
        return f"{self.named}{bounded(left)};t={window}"

    def returns_in_ns(self, figures: Figures) -> int | None:
        """As the function of that name."""
        allowed, _, _, left, wait, longest, source, _ = figures
        if not allowed and wait and source == OVERRIDE:
            return wait
        if not longest or self.has_slots:
            return None
        if self.pace is not None and (others := self.quota - left - 1) > 0:
            longest -= others * self.pace[0] // self.pace[1]
        if wait and wait < longest:
            longest = wait
        return longest if longest > 0 else 1


def pace_of(limit: Limit) -> tuple[int, int] | None:
    """In how many nanoseconds how many units come back; None if not one after the other."""
    if isinstance(limit, LeakyQueue):
        rate = limit.per_second
        return rate.denominator * SECOND, rate.numerator
    return (limit.period_ns, limit.quota) if isinstance(limit, PacedLimit) else None


def phrases_of(name: str, limit: Limit) -> Phrases:
    """The phrases of *limit*, made once."""
    # By the identity of the limit, which they keep: to hash one takes longer than all the rest.
    found = _PHRASES.get((name, id(limit)))
    if found is None:
        if len(_PHRASES) >= MOST_PHRASES:
            _PHRASES.clear()
        found = _PHRASES[name, id(limit)] = Phrases(name, limit)
    return found


_PHRASES: Final[dict[tuple[str, int], Phrases]] = {}


def returns_in_ns(decision: Decision) -> int | None:
    """Nanoseconds until the next unit comes back, or a little later; None if there is no telling.

    Exact to a nanosecond for paced and fixed windows, and for a cost of 1 that was refused.
    """
    return phrases_of("", decision.limit).returns_in_ns(decision.figures())


def without_policies(value: str, names: set[str]) -> str:
    """A line of either field without the items about policies in *names*; "" if none is left."""
    items = [item.strip() for item in _ITEM.findall(value)]
    return ", ".join(item for item in items if item and _name_of(item) not in names)


def names_in(value: str) -> set[str]:
    """The names of the policies in a line of either field."""
    return {name for item in _ITEM.findall(value) if (name := _name_of(item.strip())) is not None}


def quoted(text: str) -> str:
    """*text* as a String of RFC 9651, which has printable ASCII alone."""
    if not _PRINTABLE.fullmatch(text):
        raise OptionError(f"the name {text!r} cannot be sent; expected printable ASCII alone")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@lru_cache(maxsize=4096)
def _policy_item(name: str, limit: Limit) -> str:
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


def _name_of(item: str) -> str | None:
    found = _STRING.match(item)
    return re.sub(r"\\(.)", r"\1", found[1]) if found else None
