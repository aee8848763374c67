"""A region's store that tells the other regions' stores what was used, for event loops."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, TypeVar

from headgate.errors import HeadgateError
from headgate.fork import watch_forks
from headgate.stores.base import AsyncStore
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
    from collections.abc import Collection, Mapping, Sequence

    from headgate.clock import Clock
    from headgate.decision import Decision
    from headgate.limits import Limit
    from headgate.stores.base import Asker, Hitter, Terms
    from headgate.stores.layers.replication.tally import Message
    from headgate.stores.operations import Check, Operation

R = TypeVar("R")


class AsyncRegionalStore(AsyncStore):
    """As `RegionalStore`, for event loops. A task for each region tells it, while there is any."""

    def __init__(
        self,
        local: AsyncStore,
        *,
        region: str,
        peers: Mapping[str, AsyncStore],
        every_ns: int = DEFAULT_EVERY_NS,
        groups: Collection[str] | None = None,
        max_keys: int = DEFAULT_MAX_KEYS,
        max_debt_ns: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        checked_peers(region, local, peers)
        self.local = local
        self.waits = local.waits
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
        self._tasks: list[asyncio.Task[None] | None] = [None] * len(self._peers)
        self._is_closed = False
        watch_forks(self)

    def __repr__(self) -> str:
        others = ", ".join(link.peer for link in self._exchange.links)
        return f"<{type(self).__name__} of {self._exchange.region}, telling {others}>"

    async def run(self, operation: Operation[R]) -> R:
        result = await self.local.run(operation)
        if self._exchange.note(operation, result):
            self._start()
        return result

    def hitter(self, places: Sequence[tuple[str, Limit]]) -> Hitter | None:
        inner = self.local.hitter(places)
        if inner is None:
            return None
        hit_inside, kept, note, start = inner, tuple(places), self._exchange.note_hit, self._start

        def hit(key: str, cost: int = 1) -> Decision:
            decision = hit_inside(key, cost)
            if cost and decision.allowed and note(kept, key, cost):
                start()
            return decision

        return hit

    def asker(self, places: Sequence[tuple[str, Limit]]) -> Asker | None:
        inner = self.local.asker(places)
        if inner is None:
            return None
        ask_inside, kept, note, start = inner, tuple(places), self._exchange.note_hit, self._start

        async def ask(key: str, cost: int = 1) -> Decision:
            decision = await ask_inside(key, cost)
            if cost and decision.allowed and note(kept, key, cost):
                start()
            return decision

        return ask

    def take_quickly(self, checks: Sequence[Check]) -> tuple[Decision, ...] | None:
        decisions = self.local.take_quickly(checks)
        if decisions is not None and self._exchange.note(Take(tuple(checks)), decisions):
            self._start()
        return decisions

    def adopt(self, terms: Terms) -> None:
        """Share the groups that *terms* say are shared; if none are, those of the beginning."""
        self.local.adopt(terms)
        named = {group for group, how in terms.items() if how.across_regions}
        self.share(named or self._groups)

    def share(self, groups: Collection[str] | None) -> None:
        """As `RegionalStore.share`."""
        self._exchange.share(groups)

    async def exchange(self) -> None:
        """As `RegionalStore.exchange`, all regions at the same time."""
        await asyncio.gather(*(self._tell_all(peer) for peer in range(len(self._peers))))

    async def aclose(self) -> None:
        """Tell what was not told, for a second at most, and close all stores."""
        if self._is_closed:
            return
        self._is_closed = True
        for task in self._tasks:
            if task is not None and not task.get_loop().is_closed():
                task.get_loop().call_soon_threadsafe(task.cancel)
        try:
            await asyncio.wait_for(self.exchange(), LAST_WORDS_NS / SECOND)
        except TimeoutError:
            pass  # whoever does not hear in time is not told
        finally:
            self._exchange.close()
            await asyncio.gather(*(store.aclose() for store in (*self._peers, self.local)))

    def after_fork(self) -> None:
        """This is another process now: what was counted so far, the other one tells."""
        self._exchange.after_fork()
        self._tasks = [None] * len(self._peers)

    def _start(self) -> None:
        """There is something to tell: have a task for each region, in this loop if it has none."""
        for peer, task in enumerate(self._tasks):
            if task is None or task.done() or not task.get_loop().is_running():
                if self._is_closed:
                    return
                work = _keep_telling(weakref.ref(self), peer)
                self._tasks[peer] = asyncio.get_running_loop().create_task(work)

    async def _tell_all(self, peer: int) -> None:
        for _ in range(self._exchange.rounds(peer)):
            if not await self._tell(peer):
                return

    async def _tell(self, peer: int) -> bool:
        """Tell one region what it has not been told, in as few round trips as there are; whether it
        heard. One that did not hear the last time is told one message first."""
        saying: list[asyncio.Task[HeadgateError | None]] = []
        is_up = self._exchange.links[peer].is_up
        try:
            for message in self._exchange.messages(peer):
                saying.append(asyncio.create_task(self._say(peer, message)))
                if not is_up and await saying[0] is not None:
                    break
                await asyncio.sleep(0)  # others have their turn before the next one is made
            errors = [error for error in await asyncio.gather(*saying) if error is not None]
        finally:
            for task in saying:
                task.cancel()
        if saying:
            self._exchange.went(peer, errors[0] if errors else None)
        return not errors

    async def _say(self, peer: int, message: Message) -> HeadgateError | None:
        try:
            outcomes = await self._peers[peer].run(message.absorb)
        except HeadgateError as error:
            return error
        self._exchange.heard(peer, message, outcomes)
        return None

    def _pause(self, peer: int, spent_ns: int) -> float:
        return self._exchange.links[peer].pause_ns(spent_ns) / SECOND

    def _is_told(self, peer: int) -> bool:
        return self._exchange.is_told(peer)


async def _keep_telling(me: weakref.ref[AsyncRegionalStore], peer: int) -> None:
    """Tell one region until it knows everything, as long as the store is there."""
    loop = asyncio.get_running_loop()
    spent_ns = 0
    while True:
        store = me()
        if store is None or store._is_told(peer):  # noqa: SLF001 (the store's own work, elsewhere)
            return
        pause = store._pause(peer, spent_ns)  # noqa: SLF001
        del store  # whoever waits must not keep it
        await asyncio.sleep(pause)
        store = me()
        if store is None:
            return
        began = loop.time()
        await store._tell(peer)  # noqa: SLF001
        spent_ns = int((loop.time() - began) * SECOND)
        del store
