"""Refusals that are still true: keys that need not ask again before a known time.

A cost that was refused fits at a known moment and not before, unless somebody gives something back,
and then no larger cost fits either. So a refusal answers for its cost and all larger ones until
that moment, and never for longer than its keeper says: others may refund or reset elsewhere.

What is told is honest: the times are counted down. Of a cost larger than any that was refused it is
only known that it fits no sooner. A cost that can never fit is known to be refused for good, yet
only kept like the others, as the limit may change.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from headgate.algorithms import Outcome
from headgate.errors import OptionError

LONGEST_KEY: Final = 1024
"""Characters of a key above which its refusals are not remembered: they would take memory at the
will of the caller."""

MOST_COSTS: Final = 4
"""How many refused costs of one key are remembered."""


class _Denial(NamedTuple):
    cost: int
    outcome: Outcome
    noted_ns: int
    until_ns: int


_Name = tuple[str, str]
_Entry = tuple[int, tuple[_Denial, ...]]
"""The turn of the group at which it was made, and the refusals by cost, the smallest first."""


class Denials:
    """Refusals of up to *most* keys. All is O(1); the oldest make way for new ones.

    Sprayed keys can displace what is remembered of others, which costs those a round trip, no more.
    Threads may share one without a lock: entries are replaced whole, and of two that are made of
    one key at the same moment one may be lost.
    """

    def __init__(self, most: int = 10_000) -> None:
        if most < 1:
            raise OptionError(f"most is {most}; expected at least 1 key")
        self._most = most
        self._entries: dict[_Name, _Entry] = {}
        self._order: deque[tuple[_Name, _Entry]] = deque()
        self._turns: dict[str, int] = {}

    def __len__(self) -> int:
        """How many keys something is remembered of, be it true still or not."""
        return len(self._entries)

    def note(
        self, group: str, key: str, cost: int, outcome: Outcome, now_ns: int, keep_ns: int
    ) -> None:
        """Remember that *cost* was refused with *outcome*, for *keep_ns* at most.

        *now_ns* is to be read before the store was asked: then no refusal outlives its cause.
        """
        wait_ns = outcome.retry_after_ns
        lasts_ns = keep_ns if wait_ns is None else min(wait_ns, keep_ns)
        if outcome.allowed or lasts_ns <= 0 or len(key) > LONGEST_KEY:
            return
        name = group, key
        denial = _Denial(cost, outcome, now_ns, now_ns + lasts_ns)
        others = [
            other for other in self._denials(name) if other.cost != cost and other.until_ns > now_ns
        ]
        if len(others) >= MOST_COSTS:
            others.remove(min(others, key=_end))
        entry = self._turns.get(group, 0), tuple(sorted([*others, denial], key=_cost))
        self._entries[name] = entry
        self._order.append((name, entry))
        self._make_room(now_ns)

    def find(self, group: str, key: str, cost: int, now_ns: int) -> Outcome | None:
        """What is known to come of asking for *cost* now; None: nothing is, ask."""
        entry = self._entries.get((group, key))
        if entry is None or cost <= 0:
            return None
        turn, denials = entry
        if self._turns and self._turns.get(group, 0) != turn:
            return None
        for denial in reversed(denials):
            if denial.cost <= cost and now_ns < denial.until_ns:
                return _counted_down(denial, now_ns)
        return None

    def forget(self, group: str, key: str) -> None:
        """Something was given back to a counter, or it was reset."""
        self._entries.pop((group, key), None)

    def forget_group(self, group: str) -> None:
        """The limit or the terms of a group have changed."""
        if len(self._turns) >= self._most:
            self._entries.clear()
            self._order.clear()
            self._turns.clear()
        self._turns[group] = self._turns.get(group, 0) + 1

    def _denials(self, name: _Name) -> tuple[_Denial, ...]:
        entry = self._entries.get(name)
        if entry is None or entry[0] != self._turns.get(name[0], 0):
            return ()
        return entry[1]

    def _make_room(self, now_ns: int) -> None:
        """Drop what is too much; else, of the two oldest, what is true no longer."""
        try:
            for _ in range(2):
                name, entry = self._order[0]
                if len(self._order) <= self._most and not _is_over(entry, now_ns):
                    return
                self._order.popleft()
                if self._entries.get(name) is entry:
                    self._entries.pop(name, None)
        except IndexError:  # another thread was quicker
            return


def _is_over(entry: _Entry, now_ns: int) -> bool:
    return all(denial.until_ns <= now_ns for denial in entry[1])


def _cost(denial: _Denial) -> int:
    return denial.cost


def _end(denial: _Denial) -> int:
    return denial.until_ns


def _counted_down(denial: _Denial, now_ns: int) -> Outcome:
    passed_ns = max(0, now_ns - denial.noted_ns)
    outcome = denial.outcome
    wait_ns = outcome.retry_after_ns
    return Outcome(
        allowed=False,
        remaining=outcome.remaining,
        retry_after_ns=None if wait_ns is None else wait_ns - passed_ns,
        reset_after_ns=max(0, outcome.reset_after_ns - passed_ns),
        source="cache",
    )
