"""A region's store that tells the other regions' stores what was used, for callers that block."""

from __future__ import annotations

import threading
import weakref
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from headgate.errors import HeadgateError
from headgate.fork import watch_forks
from headgate.stores.base import Store
from headgate.stores.layers.replication.exchange import (
    DEFAULT_EVERY_NS,
    DEFAULT_MAX_KEYS,
    LAST_WORDS_NS,
    Exchange,
    checked_peers,
)
from headgate.stores.operations import Take
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from headgate.clock import Clock
    from headgate.decision import Decision
    from headgate.limits import Limit
    from headgate.stores.base import Hitter, Terms
    from headgate.stores.layers.replication.tally import Message
    from headgate.stores.operations import Check, Operation


# Several messages at the same time, by threads: over a slow link most of the time is waiting.


MOST_SPEAKERS: Final = 16
"""Messages that are under way to one region at the same time."""


class Talk:
    """All that the region of number *peer*, whose store is *store*, has to be told now."""

    def __init__(self, exchange: Exchange, peer: int, store: Store) -> None:
        self._exchange = exchange
        self._peer = peer
        self._store = store
        self._name = f"headgate-region-{exchange.links[peer].peer}-more"
        self._left: Iterator[Message] = exchange.messages(peer)
        self._lock = threading.Lock()
        self._is_over = False
        self._failure: HeadgateError | None = None

    def tell(self) -> bool:
        """Tell it; whether everything was heard.

        A region that did not hear the last time is told one message after another.
        """
        first = self._next()
        if first is None:
            return True
        speakers = self._speakers() if self._exchange.links[self._peer].is_up else []
        self._say_on(first)
        for speaker in speakers:
            speaker.join()
        self._exchange.went(self._peer, self._failure)
        return self._failure is None

    def _speakers(self) -> list[threading.Thread]:
        """A thread for each further message, up to a number; each goes on with what is left."""
        speakers: list[threading.Thread] = []
        while len(speakers) < MOST_SPEAKERS - 1 and (message := self._next()) is not None:
            speaker = threading.Thread(
                target=self._say_on, args=(message,), daemon=True, name=self._name
            )
            try:
                speaker.start()
            except RuntimeError:  # too many threads, or the process ends: it is told the next time
                self._is_over = True
                break
            speakers.append(speaker)
        return speakers

    def _next(self) -> Message | None:
        with self._lock:
            return None if self._is_over else next(self._left, None)

    def _say_on(self, message: Message | None) -> None:
        """Say *message*, and then what is left."""
        while message is not None:
            try:
                outcomes = self._store.run(message.absorb)
            except HeadgateError as error:
                self._failure = error
                if getattr(error, "reason", "refused") != "refused":
                    self._is_over = True  # the others would fare no better, but for one refused
            else:
                self._exchange.heard(self._peer, message, outcomes)
            message = self._next()


R = TypeVar("R")


class RegionalStore(Store):
    """Counters in *local*, the store of *region*; *peers*, the stores of other regions, are told.

    Every decision is made by *local* alone: exact within the region, and one round trip within it.
    What is admitted here is charged in the other regions' stores within *every_ns* and the time
    that a message takes, by a thread for each, so none of them delays anything. A region that
    cannot be told is told later; what it has not heard counts there not at all meanwhile.

    Counters of *groups* alone are shared; None: all. At most *max_keys* counters are remembered for
    telling. Where more is used than a limit allows, because regions could not hear each other, a
    debt is worked off before anything more is admitted; with *max_debt_ns* a region whose counter
    refuses for longer than that is spared the rest. The store owns *local* and *peers*.
    """

    def __init__(
        self,
        local: Store,
        *,
        region: str,
        peers: Mapping[str, Store],
        every_ns: int = DEFAULT_EVERY_NS,
        groups: Collection[str] | None = None,
        max_keys: int = DEFAULT_MAX_KEYS,
        max_debt_ns: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        checked_peers(region, local, peers)
        self.local = local
        self.may_fail = local.may_fail
        self.lends = local.lends
        self.shares = local.shares
        self._groups = groups
        self.where = getattr(local, "where", type(local).__name__)
        self.part_of = getattr(local, "part_of", None)
        self._exchange = Exchange(
            region,
            peers,
            every_ns=every_ns,
            groups=groups,
            max_keys=max_keys,
            max_debt_ns=max_debt_ns,
            clock=clock,
        )
        self._peers = tuple(peers[link.peer] for link in self._exchange.links)
        self._is_closed = False
        self._start_over()
        watch_forks(self)

    def __repr__(self) -> str:
        others = ", ".join(link.peer for link in self._exchange.links)
        return f"<{type(self).__name__} of {self._exchange.region}, telling {others}>"

    def run(self, operation: Operation[R]) -> R:
        result = self.local.run(operation)
        if self._exchange.note(operation, result):
            self._ring()
        return result

    def hitter(self, places: Sequence[tuple[str, Limit]]) -> Hitter | None:
        inner = self.local.hitter(places)
        if inner is None:
            return None
        hit_inside, kept, note, ring = inner, tuple(places), self._exchange.note_hit, self._ring

        def hit(key: str, cost: int = 1) -> Decision:
            decision = hit_inside(key, cost)
            if cost and decision.allowed and note(kept, key, cost):
                ring()
            return decision

        return hit

    def take_quickly(self, checks: Sequence[Check]) -> tuple[Decision, ...] | None:
        decisions = self.local.take_quickly(checks)
        if decisions is not None and self._exchange.note(Take(tuple(checks)), decisions):
            self._ring()
        return decisions

    def adopt(self, terms: Terms) -> None:
        """Share the groups that *terms* say are shared; if none are, those of the beginning."""
        self.local.adopt(terms)
        named = {group for group, how in terms.items() if how.across_regions}
        self.share(named or self._groups)

    def share(self, groups: Collection[str] | None) -> None:
        """From now on tell the other regions what is used of the counters of *groups*; None: all.

        What was counted before is still told.
        """
        self._exchange.share(groups)

    def exchange(self) -> None:
        """Tell every region now what it has not been told. Blocks until they have heard or failed.

        There is no need to: it is done in the background.
        """
        for peer in range(len(self._peers)):
            for _ in range(self._exchange.rounds(peer)):
                if not self._tell(peer):
                    break

    def close(self) -> None:
        """Tell what was not told, for a second at most, and close all stores."""
        if self._is_closed:
            return
        self._is_closed = True
        self._closing.set()
        self._ring()
        deadline = monotonic() + LAST_WORDS_NS / SECOND
        for thread in self._threads:
            thread.join(max(deadline - monotonic(), 0))
        self._exchange.close()
        for store in (*self._peers, self.local):
            store.close()

    def after_fork(self) -> None:
        """This is another process now: what was counted so far, the other one tells."""
        self._exchange.after_fork()
        self._start_over()

    def _start_over(self) -> None:
        self._closing = threading.Event()
        self._bells = [threading.Event() for _ in self._peers]
        self._threads: list[threading.Thread] = []
        self._starting = threading.Lock()

    def _ring(self) -> None:
        """There is something to tell."""
        if not self._threads:
            self._start()
        for bell in self._bells:
            if not bell.is_set():
                bell.set()

    def _start(self) -> None:
        with self._starting:
            if self._threads or self._is_closed:
                return
            started = []
            for peer, bell in enumerate(self._bells):
                me = weakref.ref(self, _waking(bell, self._closing))
                link = self._exchange.links[peer]
                thread = threading.Thread(
                    target=_keep_telling,
                    args=(me, peer, bell, self._closing),
                    daemon=True,
                    name=f"headgate-region-{link.peer}",
                )
                thread.start()
                started.append(thread)
            self._threads = started

    def _tell(self, peer: int) -> bool:
        """Tell one region what it has not been told; whether it heard."""
        return Talk(self._exchange, peer, self._peers[peer]).tell()

    def _pause(self, peer: int, spent_ns: int) -> float:
        return self._exchange.links[peer].pause_ns(spent_ns) / SECOND


def _waking(*events: threading.Event) -> Callable[[object], None]:
    """What is to be done when the store is gone: its threads wake, see it and end."""

    def wake(_: object) -> None:
        for event in events:
            event.set()

    return wake


def _keep_telling(
    me: weakref.ref[RegionalStore], peer: int, bell: threading.Event, closing: threading.Event
) -> None:
    """Tell one region what there is to tell, as long as the store is there. A thread's work."""
    spent_ns = 0
    while True:
        bell.wait()
        bell.clear()
        store = me()
        if store is None:
            return
        pause = store._pause(peer, spent_ns)  # noqa: SLF001 (the store's own work, elsewhere)
        del store  # whoever waits must not keep it
        closing.wait(pause)
        store = me()
        if store is None:
            return
        began = monotonic()
        is_heard = store._tell(peer)  # noqa: SLF001
        spent_ns = int((monotonic() - began) * SECOND)
        is_told = store._exchange.is_told(peer)  # noqa: SLF001
        if closing.is_set() and (is_told or not is_heard):
            return
        if not is_told:
            bell.set()
        del store
