"""What both shells of a regional store share: the tally, the links, and who may use them when."""

from __future__ import annotations

import logging
import random
import threading
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

from headgate.clock import MonotonicClock
from headgate.errors import OptionError
from headgate.observability import MEASURES
from headgate.stores.layers.replication.tally import MOST_AT_ONCE, Tally, consumption
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from headgate.clock import Clock
    from headgate.errors import HeadgateError
    from headgate.limits import Limit
    from headgate.stores.layers.replication.tally import Message
    from headgate.stores.operations import Operation, Outcomes


# The way to one other region: when to go it next, and what to say of how it went.


LOG: Final = logging.getLogger("headgate.stores.layers.replication")

LONGEST_PAUSE_NS: Final = 2 * SECOND
"""The longest that a region which could not be told is left alone."""

JITTER: Final = 0.25
"""By what part of itself a pause may be shorter or longer: a fleet must not speak in step."""


class Link:
    """The way from *region* to *peer*, gone every *every_ns* as long as there is something to tell.

    After a failure it is left alone for a while that doubles each time, up to `LONGEST_PAUSE_NS`,
    cut to a random part of itself. *chance* gives numbers from 0 to 1.
    """

    def __init__(
        self, region: str, peer: str, *, every_ns: int, chance: Callable[[], float]
    ) -> None:
        self.peer = peer
        self._region = region
        self._every_ns = every_ns
        self._chance = chance
        self._failures = 0
        self._exchanges = MEASURES.counter(
            "region_exchanges", "Messages that another region has heard.", peer=peer
        )
        self._failed = MEASURES.counter(
            "region_failures", "Attempts to tell another region that failed.", peer=peer
        )

    @property
    def is_up(self) -> bool:
        """Whether the last message was heard."""
        return self._failures == 0

    def heard(self) -> None:
        """A message was heard."""
        self._exchanges.add()

    def succeeded(self) -> None:
        """All messages that there were have been heard."""
        if self._failures:
            LOG.warning(
                "region %s: %s hears us again, after %d attempts",
                self._region,
                self.peer,
                self._failures,
            )
        self._failures = 0

    def failed(self, error: HeadgateError) -> None:
        """Some of them were not heard, or nobody knows."""
        self._failed.add()
        if not self._failures:
            LOG.warning(
                "region %s: %s cannot be told what is used here; it is tried again until it can: "
                "%s",
                self._region,
                self.peer,
                error,
            )
        self._failures += 1

    def closed(self, left: int) -> None:
        """The store is closed, and the region does not know all of *left* counters."""
        LOG.warning(
            "region %s: closed before %s was told all that was used of %d counters",
            self._region,
            self.peer,
            left,
        )

    def pause_ns(self, spent_ns: int = 0) -> int:
        """How long to wait before the next messages, those before having taken *spent_ns*."""
        if self._failures:
            longest = min(self._every_ns << min(self._failures, 20), LONGEST_PAUSE_NS)
            longest = max(longest, self._every_ns)
            return int(longest * (1 + self._chance()) / 2)
        pause = int(self._every_ns * (1 - JITTER + 2 * JITTER * self._chance()))
        return max(pause - spent_ns, 0)


DEFAULT_EVERY_NS: Final = 100 * MILLISECOND
"""How often other regions are told what was used."""

DEFAULT_MAX_KEYS: Final = 20_000
"""How many counters' consumption a node remembers at most."""

LAST_WORDS_NS: Final = SECOND
"""How long a store that is closed goes on telling what it has not told."""


class Exchange:
    """What this node has used, and the ways to the other regions. Safe to share among threads.

    The region is *region*, the others are *peers*, by their names, and are told every *every_ns*.
    *groups* and *max_debt_ns* are as for a `Tally`. *clock* numbers the windows.
    """

    def __init__(
        self,
        region: str,
        peers: Iterable[str],
        *,
        every_ns: int,
        groups: Collection[str] | None,
        max_keys: int,
        max_debt_ns: int | None,
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        _check_least(every_ns, "every_ns", MILLISECOND)
        _check_least(max_keys, "max_keys", 1)
        if max_debt_ns is not None:
            _check_least(max_debt_ns, "max_debt_ns", 0)
        self.region = region
        self.clock: Clock = MonotonicClock() if clock is None else clock
        self.links = tuple(
            Link(region, peer, every_ns=every_ns, chance=chance) for peer in sorted(peers)
        )
        self._max_keys = max_keys
        self._max_debt_ns = max_debt_ns
        self._groups = groups
        self._dropped = MEASURES.counter(
            "region_keys_dropped", "Counters of which a region was not told all that was used."
        )
        self._spared = MEASURES.counter(
            "region_units_spared", "Units that a region in debt was not told of."
        )
        self._gauges = [Lag(self, n) for n in range(len(self.links))]
        for link, gauge in zip(self.links, self._gauges, strict=True):
            text = "Age in seconds of the oldest consumption that a region has not been told."
            MEASURES.gauge("region_lag_seconds", text, gauge.seconds, peer=link.peer)
        self.after_fork()

    def after_fork(self) -> None:
        """This is another process now: what was counted before, another one tells."""
        self._lock = threading.Lock()
        self._tally = Tally(
            f"{self.region}/{token_hex(6)}",
            peers=len(self.links),
            max_keys=self._max_keys,
            groups=self._groups,
            max_debt_ns=self._max_debt_ns,
        )

    def share(self, groups: Collection[str] | None) -> None:
        """As `Tally.share`."""
        with self._lock:
            self._groups = groups
            self._tally.share(groups)

    def note(self, operation: Operation[Any], result: Any) -> bool:
        """Count what *operation* has used; whether there is something to be told now."""
        used = list(consumption(operation, result))
        if not used:
            return False
        now_ns = self.clock()
        is_new = False
        with self._lock:
            for check, amount in used:
                is_new |= self._tally.add(check.group, check.key, check.limit, amount, now_ns)
        return is_new

    def note_hits(
        self, places: Sequence[tuple[str, Limit]], keys: Sequence[str], costs: Sequence[int]
    ) -> bool:
        """Count the *costs* of *keys* in *places*; the result as of `note`."""
        now_ns = self.clock()
        is_new = False
        with self._lock:
            for (group, limit), key, cost in zip(places, keys, costs, strict=True):
                is_new |= self._tally.add(group, key, limit, cost, now_ns)
        return is_new

    def rounds(self, peer: int) -> int:
        """How often all `messages` have to be told until all that there is now is known."""
        return -(-self._tally.waiting(peer) // MOST_AT_ONCE)

    def messages(self, peer: int) -> Iterator[Message]:
        """What the region of number *peer* has to be told now. Each is made when it is asked for:
        requests wait meanwhile, or a loop does."""
        for _ in range(self._tally.portions(peer)):
            now_ns = self.clock()
            with self._lock:
                self._tally.sweep(now_ns)
                portion = self._tally.messages(peer, now_ns)
                self._count()
            yield from portion

    def heard(self, peer: int, message: Message, outcomes: Outcomes) -> None:
        """The region of number *peer* has heard *message*."""
        self.links[peer].heard()
        with self._lock:
            self._tally.heard(peer, message, outcomes)
            self._count()

    def went(self, peer: int, error: HeadgateError | None) -> None:
        """The messages to the region of number *peer* are done with; *error*: some failed."""
        if error is None:
            self.links[peer].succeeded()
        elif self._gauges:  # else it has been said already that it could not be told
            self.links[peer].failed(error)

    def is_told(self, peer: int) -> bool:
        """Whether the region of number *peer* knows everything."""
        return self._tally.is_told(peer)

    def close(self) -> None:
        """Nobody is told anything any more."""
        self._gauges.clear()  # or they would tell of a lag that grows for ever
        for peer, link in enumerate(self.links):
            left = self._tally.waiting(peer)
            if left:
                link.closed(left)

    def lag_ns(self, peer: int) -> int:
        """How old the oldest is that the region of number *peer* has not been told."""
        with self._lock:
            return self._tally.lag_ns(peer, self.clock())

    def _count(self) -> None:
        tally = self._tally
        if tally.dropped:
            self._dropped.add(tally.dropped)
            tally.dropped = 0
        if tally.spared:
            self._spared.add(tally.spared)
            tally.spared = 0


class Lag:
    """What the gauge of one region says."""

    def __init__(self, exchange: Exchange, peer: int) -> None:
        self._exchange = exchange
        self._peer = peer

    def seconds(self) -> float:
        """How far it is behind."""
        return self._exchange.lag_ns(self._peer) / SECOND


def checked_peers(region: str, local: object, peers: Mapping[str, Any]) -> None:
    """Raise `OptionError` unless *region* and its *peers* can exchange anything."""
    for name in (region, *peers):
        if type(name) is not str or not name or "/" in name:
            raise OptionError(f"{name!r} is not a region; expected a name such as 'eu', without /")
    if not peers:
        raise OptionError(f"the region {region!r} has no peers; use its store as it is")
    if region in peers:
        raise OptionError(f"the region {region!r} is among its own peers; name the others alone")
    for name, store in peers.items():
        if store is local:
            raise OptionError(f"the store of {name!r} is that of {region!r}; all would count twice")
        if not store.grants_leases:
            raise OptionError(
                f"the store of {name!r} cannot be told what others use; expected one on Redis"
            )


def _check_least(value: object, what: str, least: int) -> None:
    if type(value) is not int or value < least:
        raise OptionError(f"{what} is {value!r}; expected an integer of at least {least}")
