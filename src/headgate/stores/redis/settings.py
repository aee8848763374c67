"""What the blocking store and the async one have in common: all but how they wait."""

from __future__ import annotations

from binascii import crc32
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.stores.redis.calls.hitting import Place
from headgate.stores.redis.calls.pending import Pending
from headgate.stores.redis.counters.naming import TAGS, Names, slot_of, tags
from headgate.stores.redis.counters.specs import PacedSpec, spec_of
from headgate.stores.redis.url import parse_redis_url
from headgate.units import MICROSECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.clock import Clock
    from headgate.limits import Limit
    from headgate.stores.redis.request import AsyncTransport, Transport

LATEST: Final = 4_500_000_000_000_000
"""The last microsecond that a passed clock may tell, in the year 2112; later ones count as it."""


class Settings:
    """Where the servers are, how counters are named there, and whose clock counts."""

    def __init__(self, url: str, clock: Clock | None) -> None:
        self.url = url
        parsed = parse_redis_url(url)
        self.where = str(parsed)
        self.timeout = parsed.timeout
        self.connections = parsed.options.connections
        self.names = Names(has_tags=parsed.is_cluster)
        if clock is not None and type(clock()) is not int:
            raise OptionError(f"the clock says {clock()!r}; expected a function like time.time_ns")
        self._clock = clock

    @property
    def has_server_clock(self) -> bool:
        """Whether time is the server's, not that of a clock of our own."""
        return self._clock is None

    def now(self) -> bytes:
        """What the scripts take for the time: nothing for the server's own."""
        if self._clock is None:
            return b""
        return b"%d" % min(max(self._clock() // MICROSECOND, 0), LATEST)

    def pending(self) -> Pending:
        """An empty collection of what is to be sent."""
        return Pending(self.names, self.now)

    def place(self, places: Sequence[tuple[str, Limit]]) -> Place | None:
        """The one place of a limiter that can take the short way; None if it cannot.

        Raises `LimitError` for a limit whose numbers Redis cannot hold.
        """
        specs = [spec_of(limit) for _, limit in places]
        if len(specs) == 1 and isinstance(specs[0], PacedSpec):
            return Place(places[0][0], specs[0])
        return None


def part_finder(transport: Transport | AsyncTransport) -> Callable[[str], str]:
    """From a key to the node of a cluster that keeps its counters, as far as is known now."""
    slots = tuple(slot_of(tag) for tag in tags())
    owner_of = transport.owner_of

    def part_of(key: str) -> str:
        return owner_of(slots[crc32(key.encode("utf-8", "surrogatepass")) % TAGS])

    return part_of
