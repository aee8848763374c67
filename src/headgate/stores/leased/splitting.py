"""Into how many pots the counter of a hot key is split, how large they are, and where they stand.

A pot is a share of the counter's units, lent to it in advance like to a node and kept in another
shard of the store. A quarter of what may be lent of a counter is for its pots, the rest for the
nodes themselves. With a share of s units for each pot,

- no more than D = s / 4 + 1 units are drawn at a time,
- a pot is filled up only when it is known to have fewer than D, with A = s - (D - 1) units.

So a pot never has more than A + D - 1 = s units, while the store's ledger counts the A that were
lent last. What it does not count, D - 1 for each pot, is the *margin*: all loans of the counter are
kept that much lower, and pots and loans together never exceed what may be lent.
"""

from __future__ import annotations

from binascii import crc32
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.limits import Accuracy, Limit

PLACES: Final = 16
"""A cluster spreads keys over as many places, by the checksum of the key; pots are named so that
they stand in as many of them as there are pots."""

_DRAWS: Final = 4
"""A pot is good for as many draws at least."""


@dataclass(frozen=True, slots=True)
class Split:
    """A counter in *parts* pots of *share* units each."""

    parts: int
    share: int
    cap: int | None
    """What may be lent of the counter as the ledger counts it: less the margin. Nodes leave room
    in it for the pots."""

    @classmethod
    def of(cls, limit: Limit, accuracy: Accuracy) -> Split | None:
        """How a counter of *limit* is split; None if it is not, or has too little to lend.

        What is decided locally and told later needs no pots: nodes do not wait for the counter.
        """
        if accuracy.split < 2 or accuracy.sync_ns is not None or not limit.is_divisible:
            return None
        cap = accuracy.cap(limit.quota)
        quarter = limit.quota if cap is None else cap // 4
        parts = min(accuracy.split, quarter)
        if parts < 2:
            return None
        share = quarter // parts
        if accuracy.batch is not None:
            share = min(share, accuracy.batch)
        plain = cls(parts, share, None)
        return plain if cap is None else cls(parts, share, cap - plain.margin)

    @property
    def largest_draw(self) -> int:
        """D: what is drawn at a time at most."""
        return self.share // _DRAWS + 1

    @property
    def pour(self) -> int:
        """A: what a pot is filled up with at most."""
        return self.share - (self.largest_draw - 1)

    @property
    def node_cap(self) -> int | None:
        """What may be lent of the counter, by the ledger, when it is to a node."""
        return None if self.cap is None else self.cap - self.parts * self.pour

    @property
    def margin(self) -> int:
        """What pots may have beyond what the ledger counts."""
        return self.parts * (self.largest_draw - 1)


def pots_group(group: str) -> str:
    """The group of the pots of *group*: no counter of a limit has such a name."""
    return f"pots of {group}"


def pot_key(key: str, part: int, parts: int) -> str:
    """The key of one of the pots of *key*, in the place that is its turn.

    No two pots have the same, whatever the keys: what follows the last sign is part and number.
    """
    raw = f"{key}#{part}.".encode("utf-8", "surrogatepass")
    home = crc32(key.encode("utf-8", "surrogatepass"))
    place = (home + part * PLACES // parts) % PLACES
    number = 0
    while crc32(b"%d" % number, crc32(raw)) % PLACES != place:
        number += 1
    return f"{key}#{part}.{number}"
