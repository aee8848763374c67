"""Denials that still hold: requests that are denied without the store until a known time.

A denied cost fits at a known time and not before, unless the counter changes. So a denial holds for
the same cost until then, but at most for the duration that the accuracy allows, because other nodes
may refund or reset. For another cost, only the store knows the time. The denial of a cost that can
never fit holds for all larger costs.

The figures are exact if the counter does not change: times are counted down, and `remaining` of a
paced limit is computed for now (to a tick of the store's clock). `remaining` of a sliding window is
that of the denial, so it is a lower bound.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.algorithms.base import new_outcome
from headgate.limits import FixedWindow

if TYPE_CHECKING:
    from headgate.algorithms import Outcome
    from headgate.limits.model import Limit, Pace

LONGEST_KEY: Final = 1024
"""Characters of the longest key whose denials are remembered. Callers choose keys, and long ones
would use up memory."""

MOST_COSTS: Final = 4
"""Denied costs of one key that are remembered."""


class Denial(NamedTuple):
    """The denial of one cost; all times are on the clock of the node."""

    cost: int
    until_ns: int
    remaining: int
    retry_at_ns: int | None
    reset_at_ns: int
    source: str


class Denials:
    """The denials of up to *most* keys. All methods are O(1); new denials displace the oldest.

    A denial that was displaced by sprayed keys costs its caller a round trip to the store. Not
    thread-safe.
    """

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._by_key: OrderedDict[tuple[str, str], tuple[Denial, ...]] = OrderedDict()

    def __len__(self) -> int:
        """The number of keys with denials, expired ones included."""
        return len(self._by_key)

    def remember(self, tag: str, key: str, new: Denial, now_ns: int) -> None:
        """Remember a denial. *tag* names the counters that *key* is one of."""
        if new.until_ns <= now_ns or len(key) > LONGEST_KEY:
            return
        name = tag, key
        others = [
            old
            for old in self._by_key.pop(name, ())
            if old.cost != new.cost and old.until_ns > now_ns
        ]
        if len(others) >= MOST_COSTS:
            others.remove(min(others, key=lambda old: old.until_ns))
        self._by_key[name] = (new, *others)
        self._make_room(now_ns)

    def find(self, tag: str, key: str, cost: int, pace: Pace | None, now_ns: int) -> Outcome | None:
        """The outcome of *cost* by a denial that holds now; None if the store has to decide.

        *pace* is that of the limit, if it has one.
        """
        for denial in self._by_key.get((tag, key), ()):
            denied, until_ns, remaining, retry_at_ns, reset_at_ns, source = denial
            if now_ns < until_ns and (
                cost == denied or (retry_at_ns is None and 0 < denied < cost)
            ):
                reset_ns = reset_at_ns - now_ns if reset_at_ns > now_ns else 0
                if pace is not None and cost > 1:
                    free = (pace.span - reset_ns * pace.ticks_per_ns) // pace.ticks_per_unit
                    remaining = min(max(remaining, free), cost - 1)
                wait_ns = None if retry_at_ns is None else retry_at_ns - now_ns
                return new_outcome((False, remaining, wait_ns, reset_ns, 0, 0, source))
        return None

    def forget(self, tag: str, key: str) -> None:
        """Forget the denials of a counter that has changed."""
        self._by_key.pop((tag, key), None)

    def _make_room(self, now_ns: int) -> None:
        """Drop the oldest key if there are too many; drop the two oldest if they have expired."""
        for _ in range(2):
            if not self._by_key:
                return
            name = next(iter(self._by_key))
            is_expired = all(denial.until_ns <= now_ns for denial in self._by_key[name])
            if len(self._by_key) <= self._most and not is_expired:
                return
            del self._by_key[name]


def denial_of(
    cost: int, outcome: Outcome, limit: Limit, keep_ns: int, sent_ns: int, now_ns: int
) -> Denial:
    """The denial of *cost* with *outcome*, which holds for at most *keep_ns*.

    The request was sent at *sent_ns*: counted from then, no denial outlives its cause.
    `retry_after` is counted from *now_ns*, when the caller gets the outcome.
    """
    wait_ns, reset_ns = outcome.retry_after_ns, outcome.reset_after_ns
    if wait_ns is not None:
        keep_ns = min(keep_ns, wait_ns)
    if isinstance(limit, FixedWindow):  # debt is worked off when the window ends
        keep_ns = min(keep_ns, (reset_ns - 1) % limit.window_ns + 1)
    retry_at_ns = None if wait_ns is None else now_ns + wait_ns
    return Denial(
        cost, sent_ns + keep_ns, outcome.remaining, retry_at_ns, now_ns + reset_ns, "cache"
    )
