"""The other regions of a fleet: a name for each, and where its store is."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headgate.rules.reading import scalars
from headgate.rules.reading.fields import several

if TYPE_CHECKING:
    from headgate.rules.reading.findings import Spot

_NAME: Final = re.compile("[A-Za-z0-9_-]{1,40}")
A_NAME: Final = "up to 40 letters, digits and - _"
A_PEER: Final = "a region and its store, such as us=redis://us.example.com:6379"


@dataclass(frozen=True, slots=True)
class RegionPeer:
    """Another region."""

    name: str
    store: str = field(repr=False)


def read_region(spot: Spot) -> str | None:
    """The name of a region."""
    found = scalars.word(spot, A_NAME)
    if found is not None and not _NAME.fullmatch(found):
        spot.wrong(f"found {found!r}, expected {A_NAME}")
        return None
    return found


def read_peers(spot: Spot) -> tuple[RegionPeer, ...] | None:
    """The other regions."""
    return several(spot, _peer, A_PEER)


def _peer(spot: Spot) -> RegionPeer | None:
    found = scalars.word(spot, A_PEER)
    if found is None:
        return None
    name, sign, url = found.partition("=")
    if not sign or not url or not _NAME.fullmatch(name):
        spot.wrong(f"is not {A_PEER}")  # it may have a password in it: not shown
        return None
    return RegionPeer(name, url)
