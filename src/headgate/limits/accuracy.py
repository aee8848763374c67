"""How exactly a fleet has to keep a limit: what it may overshoot to save round trips."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from fractions import Fraction

DEFAULT_SYNC_NS: Final = 100 * MILLISECOND
"""How often nodes that decide by themselves tell each other what they have used."""

DEFAULT_DENIALS_NS: Final = SECOND
"""For how long a refusal is remembered where a limit is not kept exactly."""

LEAST_CAP: Final = 2
"""Where all nodes together may have less than this in advance, nobody takes anything in advance."""

MOST_PARTS: Final = 64
"""Into how many parts the counter of a hot key may be split."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How far a fleet may overshoot a limit; nothing given: not at all, every request is asked.

    With *max_overshoot*, a share of the limit, or *batch*, units for each node, nodes take units in
    advance and serve hot keys from them. With *sync_ns* they decide by themselves and exchange what
    was used that often; *max_overshoot* or *batch* then bound what is used between two exchanges.
    A refusal is remembered for up to *denials_ns*; None: a second, or not at all where all is
    exact. The counter of a hot key is split into *split* parts over the shards of a cluster.
    *across_regions*: what is used is told to the stores of other regions, where there are any.
    """

    max_overshoot: Fraction | None = None
    batch: int | None = None
    sync_ns: int | None = None
    denials_ns: int | None = None
    split: int = 1
    across_regions: bool = False

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
        if self.split > 1 and self.max_overshoot is None and self.batch is None:
            raise OptionError("split needs max_overshoot or batch: the parts are lent in advance")

    @property
    def is_exact(self) -> bool:
        """Whether the store is asked about every request that may be admitted."""
        return self.max_overshoot is None and self.batch is None and self.sync_ns is None

    @property
    def is_always_asked(self) -> bool:
        """Whether nothing is decided without the store, refusals neither."""
        return self.is_exact and not self.remembers_ns

    @property
    def remembers_ns(self) -> int:
        """For how long a refusal is remembered at most; 0: not at all."""
        if self.denials_ns is not None:
            return self.denials_ns
        return 0 if self.is_exact else DEFAULT_DENIALS_NS

    def cap(self, quota: int) -> int | None:
        """What all nodes together may have in advance of a limit of *quota*; None: no bound but
        that of each node."""
        return None if self.max_overshoot is None else int(quota * self.max_overshoot)


EXACT: Final = Accuracy()
