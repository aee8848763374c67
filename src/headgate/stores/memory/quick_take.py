"""Several counters at once, all or nothing: the quick way of a `Take`.

Counters under paced limits are `algorithms.gcra` written out over a dict, as the hitter in `turn`
is for a single counter; where there are others, all ask their algorithms, without the detours of
`Opened`. A property test holds both together with the long way. What is out of the ordinary (a
counter that is new or has reservations, two checks of one counter, slots, turns, a cost that is 0
or can never fit, a sweep that is due) is left to that.
"""
# ruff: noqa: SLF001 (decisions are made by filling their slots: see `decisions.paced`)

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.algorithms import Algorithm, Paced
from headgate.decisions import paced_decisions
from headgate.stores.port import concluded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.decisions import Decision
    from headgate.limits import Limit
    from headgate.stores.memory.counters import Counters, Group, State
    from headgate.stores.memory.shelf import Shelf
    from headgate.stores.operations import Check

    Found = dict[Shelf[str, State], tuple["Table", dict[str, State], Check]]
    """By shelf, as equal limits have tables of their own: the table, its live counters, the check
    of one of them."""

MOST_LIMITS: Final = 64
"""How many limits of one group are remembered: policies change."""


class Table:
    """The counters of a group under *limit*, and the numbers of a paced limit."""

    __slots__ = (
        "algorithm",
        "is_paced",
        "limit",
        "new_admitted",
        "new_refused",
        "per_ns",
        "quota",
        "shelf",
        "span",
        "unit",
    )

    def __init__(self, counters: Counters, limit: Limit) -> None:
        self.shelf = counters.plain
        self.limit = limit
        self.algorithm: Algorithm[Any] = counters.algorithm
        self.quota = limit.quota
        self.is_paced = isinstance(counters.algorithm, Paced)
        if isinstance(counters.algorithm, Paced):
            pace = counters.algorithm.pace
            self.per_ns, self.unit, self.span = pace.ticks_per_ns, pace.ticks_per_unit, pace.span
            self.new_admitted, self.new_refused = paced_decisions(counters.algorithm.limit, pace)


class QuickTake:
    """The tables of a store that were asked lately. The caller has the turn."""

    __slots__ = ("_groups", "_origin", "_tables")

    def __init__(self, groups: dict[str, Group], origin: int) -> None:
        self._groups = groups
        self._origin = origin
        # By the identity of limits, which each table keeps: to hash one takes longer than the rest.
        self._tables: dict[str, dict[int, Table]] = {}

    def forget(self, group: str) -> None:
        """A table of *group* is gone."""
        self._tables.pop(group, None)

    def take(self, checks: Sequence[Check], since_origin: int) -> list[Decision] | None:
        """Charge all *checks* if all fit, else none; None, and nothing is done, if it cannot tell
        quickly. The time is counted from the store's origin."""
        found: Found = {}
        is_paced = True
        for check in checks:
            tables = self._tables.get(check.group)
            table = None if tables is None else tables.get(id(check.limit))
            if table is None:
                table = self._known(check)
                if table is None:
                    return None
            shelf = table.shelf
            live = shelf.live
            if check.key not in live and shelf.get(check.key) is None:
                return None
            if shelf in found or not 0 < check.cost <= table.quota:
                return None
            found[shelf] = table, live, check
            is_paced = is_paced and table.is_paced
        return (
            _paced(found, since_origin) if is_paced else _mixed(found, since_origin + self._origin)
        )

    def _known(self, check: Check) -> Table | None:
        """The table for *check*, remembered from now on; None if there is none, or one of slots
        or turns."""
        counters = self._groups.get(check.group, {}).get(check.limit)
        if counters is None or not check.limit.is_divisible:
            return None
        tables = self._tables.setdefault(check.group, {})
        if len(tables) >= MOST_LIMITS:
            tables.clear()
        table = tables[id(check.limit)] = Table(counters, check.limit)
        return table


def _paced(found: Found, since_origin: int) -> list[Decision]:
    """GCRA over whole ticks."""
    fits = True
    asked = []
    for table, live, check in found.values():
        now, need = since_origin * table.per_ns, check.cost * table.unit
        state = live[check.key]
        after = state - now + need if state > now else need
        if after > table.span:
            fits = False
        asked.append((table, live, check.key, now, need, after))
    decisions: list[Decision] = []
    for table, live, key, now, need, after in asked:
        if fits:
            live[key] = now + after
        if after > table.span:
            refusal = table.new_refused()
            refusal._key = key
            refusal._in_use = after
            refusal._need = need
            decisions.append(refusal)
        else:
            admitted = table.new_admitted()
            admitted._key = key
            admitted._in_use = after if fits else after - need
            decisions.append(admitted)
    return decisions


def _mixed(found: Found, now: int) -> list[Decision]:
    """The same with any algorithms."""
    waits = [
        table.algorithm.wait(live[check.key], check.cost, now)
        for table, live, check in found.values()
    ]
    fits = waits.count(0) == len(waits)
    decisions = []
    for wait, (table, live, check) in zip(waits, found.values(), strict=True):
        if fits:
            live[check.key] = table.algorithm.charge(live[check.key], check.cost, now)
        outcome = table.algorithm.outcome(live[check.key], wait, now)
        decisions.append(concluded(check.key, table.limit, outcome))
    return decisions
