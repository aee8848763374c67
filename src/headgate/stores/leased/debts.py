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


class Debts:
    """Exchanges to be repeated, each as what it told and no more: it is charged once, however often
    it is told. One is given up when its limit would have forgotten it anyway."""

    def __init__(self) -> None:
        self._lends: dict[Lend, tuple[int, int]] = {}
        self.first_ns: int | None = None

    def __contains__(self, lend: Lend) -> bool:
        return lend in self._lends

    def add(self, lend: Lend, now_ns: int) -> None:
        """What *lend* told was lost."""
        cost_free = replace(lend.check, cost=0)
        until_ns = now_ns + max(SECOND, lend.check.limit.period_ns)
        if len(self._lends) >= MOST:
            del self._lends[next(iter(self._lends))]
        self._lends[replace(lend, check=cost_free, most=0, unused=0)] = now_ns + EVERY_NS, until_ns
        self._reckon()

    def settle(self, lend: Lend) -> bool:
        """*lend* was heard; whether it was one of these."""
        was_known = self._lends.pop(lend, None) is not None
        if was_known:
            self._reckon()
        return was_known

    def due(self, now_ns: int) -> list[Lend]:
        """Those to be told now, of which each is to be told again later if it is not settled."""
        if self.first_ns is None or now_ns < self.first_ns:
            return []
        due = []
        for lend, (at_ns, until_ns) in list(self._lends.items()):
            if now_ns >= until_ns:
                del self._lends[lend]
            elif now_ns >= at_ns:
                due.append(lend)
                self._lends[lend] = now_ns + EVERY_NS, until_ns
        self._reckon()
        return due

    def all(self) -> list[Lend]:
        """All of them."""
        return list(self._lends)

    def _reckon(self) -> None:
        self.first_ns = min((at_ns for at_ns, _ in self._lends.values()), default=None)
