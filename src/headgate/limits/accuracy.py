"""Accuracy: how far a fleet may miss a limit to save round trips or to spread load."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from headgate.errors import OptionError
from headgate.units import MILLISECOND, SECOND

DEFAULT_DENIALS_NS: Final = SECOND
"""The time for which a denial is remembered where a limit is not exact."""

LEAST_CAP: Final = 2
"""Units that all nodes together may lease at least; below that there are no leases."""

MOST_PARTS: Final = 64
"""Sub-counters that a counter may be split into."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The accuracy of a limit in a fleet; nothing given: exact, the store decides every request.

    With *max_overshoot*, a share of the limit, or *batch*, units for each node, nodes take leases
    of hot keys. With *sync_ns* they decide by themselves and report what was used that often;
    *max_overshoot* or *batch* then bound what is used between two reports. A denial is remembered
    for up to *denials_ns*; None: for a second with leases, else not at all. Each counter is split
    into *split* sub-counters with an equal part of the limit each, on different shards of a
    cluster: a request sees one of them (`headgate.stores.layers.split`). *across_regions*: usage
    is replicated to the stores of other regions, where there are any; what could not be reported in
    time makes no larger debt there than *max_region_debt*, a share of the limit.
    """

    max_overshoot: Fraction | None = None
    batch: int | None = None
    sync_ns: int | None = None
    denials_ns: int | None = None
    split: int = 1
    across_regions: bool = False
    max_region_debt: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        if self.max_overshoot is not None and not 0 < self.max_overshoot <= 1:
            raise OptionError(f"max_overshoot is {self.max_overshoot}; expected above 0, up to 1")
        if self.batch is not None and self.batch < 1:
            raise OptionError(f"batch is {self.batch}; expected at least 1")
        if self.sync_ns is not None and self.sync_ns < MILLISECOND:
            raise OptionError(f"sync_ns is {self.sync_ns}; expected at least a millisecond")
        if self.denials_ns is not None and self.denials_ns < 0:
            raise OptionError(f"denials_ns is {self.denials_ns}; expected at least 0")
        if not 1 <= self.split <= MOST_PARTS:
            raise OptionError(f"split is {self.split}; expected 1 to {MOST_PARTS} parts")

    @property
    def is_exact(self) -> bool:
        """True if the store decides every request that is allowed."""
        return self.max_overshoot is None and self.batch is None and self.sync_ns is None

    @property
    def is_always_asked(self) -> bool:
        """True if nothing is decided without the store, denials included."""
        return self.is_exact and not self.remembers_ns

    @property
    def remembers_ns(self) -> int:
        """The time for which a denial is remembered at most; 0: not at all.

        A denial by one sub-counter does not hold for the others: by default it is not remembered.
        """
        if self.denials_ns is not None:
            return self.denials_ns
        return 0 if self.is_exact or self.split > 1 else DEFAULT_DENIALS_NS

    def cap(self, quota: int) -> int | None:
        """The units of a limit of *quota* that all nodes together may lease; None: no bound but
        that of each node."""
        return None if self.max_overshoot is None else int(quota * self.max_overshoot)


EXACT: Final = Accuracy()
