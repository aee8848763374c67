"""What was used under a licence and told, but not heard: to be told again until it is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from headgate.stores.operations import Lend

EVERY_NS: Final = 250 * MILLISECOND
"""How long to wait before a debt is told once more."""
MOST: Final = 10_000

MOST_AT_ONCE: Final = 64
PAUSE_NS: Final = 25 * MILLISECOND
"""So many are told, and then none for that long."""


class Debts:
    """Exchanges to be repeated, each as what it told and no more: it is charged once, however often
    it is told. One is given up when its limit would have forgotten it anyway."""

    def __init__(self) -> None:
        self._lends: dict[Lend, tuple[int, int]] = {}
        self.first_ns: int | None = None

    def __contains__(self, lend: Lend) -> bool:
        return lend in self._lends

    def add(self, lend: Lend, now_ns: int, *, from_ns: int = 0) -> None:
        """What *lend* told was lost. It is not told again before *from_ns*."""
        cost_free = replace(lend.check, cost=0)
        at_ns = max(now_ns + EVERY_NS, from_ns)
        until_ns = max(now_ns, from_ns) + max(SECOND, lend.check.limit.period_ns)
        if len(self._lends) >= MOST:
            del self._lends[next(iter(self._lends))]
        self._lends[replace(lend, check=cost_free, most=0, unused=0)] = at_ns, until_ns
        self.first_ns = at_ns if self.first_ns is None else min(self.first_ns, at_ns)

    def settle(self, lend: Lend) -> bool:
        """*lend* was heard; whether it was one of these."""
        was_known = self._lends.pop(lend, None) is not None
        if not self._lends:
            self.first_ns = None
        return was_known

    def due(self, now_ns: int) -> list[Lend]:
        """Those to be told now, of which each is to be told again later if it is not settled.

        After an outage there may be thousands: they are told bit by bit.
        """
        if self.first_ns is None or now_ns < self.first_ns:
            return []
        due: list[Lend] = []
        first_ns = now_ns + EVERY_NS
        for lend, (at_ns, until_ns) in list(self._lends.items()):
            if now_ns >= until_ns:
                del self._lends[lend]
            elif now_ns < at_ns:
                first_ns = min(first_ns, at_ns)
            elif len(due) < MOST_AT_ONCE:
                due.append(lend)
                self._lends[lend] = now_ns + EVERY_NS, until_ns
            else:
                first_ns = min(first_ns, now_ns + PAUSE_NS)
        self.first_ns = first_ns if self._lends else None
        return due

    def all(self) -> list[Lend]:
        """All of them."""
        return list(self._lends)
