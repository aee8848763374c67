"""What is known of a cluster: which node owns which slot, and when to ask again. No I/O."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from headgate.errors import StoreError
from headgate.stores.redis.transport.connect import door_to
from headgate.stores.redis.transport.redirection import SLOTS, owners
from headgate.stores.redis.transport.sentinel import Plan, Question

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.server_urls import Address
    from headgate.stores.redis.request import Reply
    from headgate.stores.redis.url import RedisURL


# How long to leave a server alone after an attempt to connect has failed.


FIRST: Final = 0.05
LONGEST: Final = 1.0


class Backoff:
    """Pauses that double from 50 ms to 1 s, each cut to a random part of itself.

    So a dead server sees few attempts, and a fleet does not come back in step. *chance* gives
    numbers from 0 to 1. Times are seconds of any clock that only goes forward.
    """

    __slots__ = ("_chance", "_error", "_failures", "_until")

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._failures = 0
        self._until = 0.0
        self._error: StoreError | None = None

    def failed(self, error: StoreError, now: float) -> None:
        """An attempt has failed at *now*: begin a pause, longer than the last."""
        longest = min(LONGEST, FIRST * 2.0 ** min(self._failures, 10))
        self._failures += 1
        self._until = now + longest * self._chance()
        self._error = error

    def succeeded(self) -> None:
        """An attempt was a success: forget the failures."""
        self._failures, self._until, self._error = 0, 0.0, None

    def refusal(self, now: float) -> StoreError | None:
        """Why not to try at *now*: the last error, and when the next attempt may be; or None."""
        if self._error is None or now >= self._until:
            return None
        wait_ms = (self._until - now) * 1_000
        return StoreError(
            f"{self._error} (the next attempt is in {wait_ms:.0f} ms)", reason=self._error.reason
        )


_SPACING: Final = 0.1  # seconds between two questions for the map, however many want it

SlotMap = list["Address | None"]


class Nodes:
    """The nodes of a cluster, as far as known. Times are monotonic seconds.

    Whoever carries out `plan` says when it begins, and how it ended.
    """

    def __init__(self, url: RedisURL) -> None:
        self.owners: SlotMap = [None] * SLOTS
        self.is_known = False
        self.is_stale = True
        self._url = url
        self._known: tuple[Address, ...] = url.addresses
        self._backoff = Backoff(random.random)
        self._not_before = 0.0

    def plan(self) -> Plan[SlotMap]:
        """Ask one node after the other for the map; a hung one takes its share of the time only."""
        error = StoreError("no node was asked")
        order = self._known
        for asked, address in enumerate(order):
            door = door_to(self._url, address)
            try:
                reply = yield Question(door, ("CLUSTER", "SLOTS"), 1 / (len(order) - asked + 1))
                found = _understood(reply, address)
            except StoreError as caught:
                error = caught
            else:
                self._remember(found, address)
                return found
        raise error

    def _remember(self, found: SlotMap, answered: Address) -> None:
        primaries = sorted({one for one in found if one is not None})
        self._known = tuple(dict.fromkeys((answered, *primaries, *self._url.addresses)))

    def refusal(self, now: float) -> StoreError | None:
        """Why not to ask for the map at *now*, after asking has failed; or None."""
        return self._backoff.refusal(now)

    def is_due(self, now: float) -> bool:
        """Whether somebody wants a new map and it may be asked for at *now*."""
        return self.is_stale and now >= self._not_before and self._backoff.refusal(now) is None

    def spacing(self, now: float) -> float:
        """Seconds until the map may be asked for again after *now*."""
        return max(self._not_before - now, 0.0)

    def begin(self, now: float) -> None:
        """Asking begins. Whoever calls the map stale from now on means the next one."""
        self.is_stale = False
        self._not_before = now + _SPACING

    def learned(self, found: SlotMap) -> None:
        """The map has been found."""
        self.owners = found
        self.is_known = True
        self._backoff.succeeded()

    def failed(self, error: StoreError, now: float) -> None:
        """Nobody would tell."""
        self.is_stale = True
        self._backoff.failed(error, now)

    def unowned(self, slot: int) -> StoreError:
        """Nobody serves *slot*."""
        return StoreError(f"no node of the cluster serves slot {slot}", reason="cluster_down")


def _understood(reply: Reply, asked: Address) -> SlotMap:
    try:
        found = owners(reply, asked)
    except (TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{asked} does not say which slots there are: {reply!r}") from error
    if not any(found):
        raise StoreError(f"{asked} knows of no slot that is served", reason="cluster_down")
    return found
