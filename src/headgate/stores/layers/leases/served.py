"""How far a take got in a node, and what it is bound by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.stores.operations import CacheOutcome, LeaseOutcome, SyncOutcome

if TYPE_CHECKING:
    from headgate.algorithms import Outcome
    from headgate.stores.layers.leases.lease import Loan, Table
    from headgate.stores.operations import Check


_KINDS: Final = {one.source: one for one in (LeaseOutcome, SyncOutcome, CacheOutcome)}


class Served(NamedTuple):
    """What one check came to here, and by what it was decided."""

    outcome: Outcome
    source: str

    @property
    def told(self) -> Outcome:
        """The outcome, which says by what it was decided if that was not the store."""
        kind = _KINDS.get(self.source)
        return self.outcome if kind is None else kind(*self.outcome)


class Taken(NamedTuple):
    """Units that were taken from a loan, to be put back if the rest cannot be had."""

    table: Table
    loan: Loan
    serial: int
    cost: int


@dataclass(slots=True)
class Begun:
    """How far a take got in this process."""

    served: list[Served | None]
    """In the order of the checks; None: the store has to be asked."""
    rest: tuple[Check, ...]
    taken: list[Taken]
    is_refused: bool


@dataclass(frozen=True, slots=True)
class Bound:
    """By how much a group may overshoot, in units, as the store last told."""

    group: str
    holders: int
    cap: int | None
    batch: int | None
    bound: int
