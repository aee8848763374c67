"""How far a take got in a node, and what it is bound by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headgate.algorithms import Outcome
    from headgate.stores.layers.leases.lease import Loan, Table
    from headgate.stores.operations import Check


class Served(NamedTuple):
    """The outcome of one check that was decided here."""

    outcome: Outcome


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
