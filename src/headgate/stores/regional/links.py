"""The way to one other region: when to go it next, and what to say of how it went."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from headgate.observability import MEASURES
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.errors import HeadgateError

LOG: Final = logging.getLogger("headgate.stores.regional")

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
