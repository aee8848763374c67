"""A plan with a store: one round trip, then conclude. A blocking shell and an async one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from headgate.engine.deciding import Deciding
from headgate.engine.holds import charge_of, holdings, refund_of, vacating
from headgate.engine.records import begin, note
from headgate.engine.verdict import repeated, verdict_of, verdict_unasked
from headgate.errors import StoreError
from headgate.runtime.holds import new_name
from headgate.stores.factory import wrapped
from headgate.stores.operations import RenewSlot

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
    from typing import Any

    from headgate.clock import Clock
    from headgate.engine.holds import Holding, Owed
    from headgate.engine.plan import Plan
    from headgate.engine.verdict import Verdict
    from headgate.stores.base import Store
    from headgate.stores.operations import Operation, Outcomes, TakeEach


class Runner(Deciding):
    """Runs plans on a store, for code that may block. *store* is a URL or a `Store`."""

    def __init__(self, store: str | Store, *, clock: Clock | None = None) -> None:
        self.store = wrapped(store, clock)
        super().__init__(self.store)

    def decide(self, plan: Plan, *, consume: bool = True) -> Verdict:
        """What comes of a request; a refusal consumes nothing."""
        if not consume:
            return self._decide_on(self.store, plan, consume=False)
        began_ns = begin()
        return note(self._decide_on(self.store, plan, consume=True), began_ns)

    def decide_unnoted(self, plan: Plan) -> Verdict:
        """As `decide`, but not in the journal: for requests that nobody has really made."""
        return self._decide_on(self.store, plan, consume=True)

    def reserve(self, plan: Plan, ttl_ns: int) -> Verdict:
        """As `decide`, with what the rules in `plan.open` charge held for *ttl_ns*."""
        began_ns = begin()
        unasked = verdict_unasked(plan)
        return note(self._reserve(plan, ttl_ns) if unasked is None else unasked, began_ns)

    def _reserve(self, plan: Plan, ttl_ns: int) -> Verdict:
        plan = plan.for_holding()
        name = plan.lease or new_name()
        heard = [(one, *self._hold(one, ttl_ns)) for one in holdings(plan, name)]
        verdict, held = self._reserved(plan, name, heard)
        if held is not None and not verdict.allowed:
            self._tell(held.give_back)
            held = None
        return replace(verdict, held=held)

    def settle(self, verdict: Verdict, amounts: Mapping[str, int]) -> bool:
        """Charge what a request really cost, by rule, in full; what was held if not said.

        Once: `SettledError` after that. Whether the store was told, and knew of the hold. If it
        could not be told it may be tried again; else the hold lapses.
        """
        held = verdict.held
        if held is None:
            return True
        settled = held.amounts(amounts)
        held.once.do("what was held for this request was settled already")
        settle = held.settle(settled, without=held.owed)
        try:
            was_open = self.store.run(settle) if settle.checks else True
        except StoreError as error:
            self._correct_here(verdict, settled, error)
            held.once.undo()
            return False
        self._correct_here(verdict, settled, None)
        held.settled = settled
        return was_open or held.is_empty

    def charge(self, owed: Owed) -> Owed:
        """Record what requests have cost beyond what they took to enter, in full.

        The rest of what is *owed*, if the store is gone: `local` rules are charged here then, and
        nobody hears of the others.
        """
        charge = charge_of(owed)
        if charge is None:
            return ()
        try:
            self.store.run(charge)
        except StoreError as error:
            return self._charge_here(owed, error)
        return ()

    def give_back(self, verdict: Verdict) -> None:
        """Give back all that a request was charged, and what is held for it; once.

        Without a word if the store is gone: it stays charged then, which is the safe side.
        """
        verdict.undone.do("what this request was charged was given back already")
        self._refund_here(verdict)
        held = verdict.held
        for step in (refund_of(verdict), None if held is None else held.end()):
            if step is not None:
                self._tell(step)
        self.vacate(verdict)

    def vacate(self, verdict: Verdict) -> None:
        """Give up the turns that a request has in queues, should they not have come yet."""
        if not verdict.vacated.begin():
            return
        self._vacate_here(verdict)
        if (step := vacating(verdict)) is not None:
            self._tell(step)

    def renew(self, verdict: Verdict) -> bool:
        """Start the leases of the slots anew that a request holds; False if one was lost. Raises
        `StoreError` if nobody knows."""
        slots = verdict.slots
        is_held = self._renew_here(verdict)
        return is_held if slots is None else self.store.run(RenewSlot(slots.checks, slots.lease))

    def release(self, verdict: Verdict) -> None:
        """Give back the slots that a request holds, or its shadows do; to be called at its end,
        also of a refused one. Without a word if the store is gone."""
        self._release_here(verdict)
        if verdict.slots is not None:
            self._tell(verdict.slots)  # or they are free when their lease has run out

    def close(self) -> None:
        """Give back what the store holds open."""
        self.fallback.close()
        self.store.close()

    def _hold(self, holding: Holding, ttl_ns: int) -> tuple[Outcomes | StoreError, frozenset[str]]:
        """Hold and take; what came of it, but for the rules that have seen the request before."""
        held: Outcomes = ()
        taken: Outcomes = ()
        try:
            if (hold := holding.hold(ttl_ns)) is not None:
                held = self.store.run(hold)
            granted = all(one.allowed for one in held)
            if (take := holding.take(consume=granted)) is not None:
                taken = self.store.run(take)
            if seen := holding.seen(taken):
                holding, taken = holding.without(seen), ()
                if (take := holding.take(consume=granted)) is not None:
                    taken = self.store.run(take)
            if granted and held and not all(one.allowed for one in taken):
                self.store.run(holding.undo()[0])
                held = self.store.run(holding.look())
        except StoreError as error:
            if held or not error.is_undone:
                for step in holding.undo():
                    self._tell(step)
            return error, frozenset()
        return holding.outcomes(held, taken), seen

    def _tell(self, step: Operation[Any]) -> bool:
        """Tell the store something that it may miss; whether it heard."""
        try:
            self.store.run(step)
        except StoreError:
            return False
        return True


class AsyncRunner(Deciding):
    """The same for an event loop. Who is cancelled meanwhile gives back what was granted."""

    def __init__(self, store: str | Store, *, clock: Clock | None = None) -> None:
        self.store = wrapped(store, clock)
        super().__init__(self.store)
        self._at_hand = None if self.store.waits else self.store
        self._undoing: set[asyncio.Future[None]] = set()

    async def decide(self, plan: Plan, *, consume: bool = True) -> Verdict:
        """As `Runner.decide`."""
        if not consume:
            return await self._decided(plan, consume=False)
        began_ns = begin()
        return note(await self._decided(plan, consume=True), began_ns)

    async def _decided(self, plan: Plan, *, consume: bool) -> Verdict:
        if (store := self._at_hand) is not None:
            return self._decide_on(store, plan, consume=consume)
        unasked = verdict_unasked(plan)
        if unasked is not None:
            return unasked
        if consume and plan.is_plain and plan.deciding and not (plan.shadows or plan.has_turns):
            return await self._adecide_plainly(plan)
        if not consume or not (plan.lease is not None or plan.has_turns):
            return await self._decide(plan, consume=consume)
        return await self._or_undo(self._decide(plan, consume=consume), self._leave)

    def decide_now(self, plan: Plan) -> Verdict | None:
        """As `decide`, for those who would rather not wait; None if the store may have to be
        waited for, and nothing was asked then."""
        began_ns = begin()
        if (store := self._at_hand) is not None:
            return note(self._decide_on(store, plan, consume=True), began_ns)
        verdict = verdict_unasked(plan)
        return None if verdict is None else note(verdict, began_ns)

    async def reserve(self, plan: Plan, ttl_ns: int) -> Verdict:
        """As `Runner.reserve`."""
        began_ns = begin()
        verdict = verdict_unasked(plan)
        if verdict is None:
            reserving = self._reserve(plan.for_holding(), ttl_ns)
            verdict = await self._or_undo(reserving, self._give_up)
        return note(verdict, began_ns)

    async def settle(self, verdict: Verdict, amounts: Mapping[str, int]) -> bool:
        """As `Runner.settle`."""
        held = verdict.held
        if held is None:
            return True
        settled = held.amounts(amounts)
        held.once.do("what was held for this request was settled already")
        settle = held.settle(settled, without=held.owed)
        try:
            was_open = await self.store.arun(settle) if settle.checks else True
        except StoreError as error:
            self._correct_here(verdict, settled, error)
            held.once.undo()
            return False
        self._correct_here(verdict, settled, None)
        held.settled = settled
        return was_open or held.is_empty

    async def charge(self, owed: Owed) -> Owed:
        """As `Runner.charge`."""
        charge = charge_of(owed)
        if charge is None:
            return ()
        try:
            await self.store.arun(charge)
        except StoreError as error:
            return self._charge_here(owed, error)
        return ()

    async def give_back(self, verdict: Verdict) -> None:
        """As `Runner.give_back`."""
        verdict.undone.do("what this request was charged was given back already")
        self._refund_here(verdict)
        held = verdict.held
        for step in (refund_of(verdict), None if held is None else held.end()):
            if step is not None:
                await self._tell(step)
        await self.vacate(verdict)

    async def vacate(self, verdict: Verdict) -> None:
        """As `Runner.vacate`."""
        if not verdict.vacated.begin():
            return
        self._vacate_here(verdict)
        if (step := vacating(verdict)) is not None:
            await self._tell(step)

    async def renew(self, verdict: Verdict) -> bool:
        """As `Runner.renew`."""
        slots = verdict.slots
        is_held = self._renew_here(verdict)
        return (
            is_held
            if slots is None
            else await self.store.arun(RenewSlot(slots.checks, slots.lease))
        )

    async def release(self, verdict: Verdict) -> None:
        """As `Runner.release`."""
        self._release_here(verdict)
        if verdict.slots is not None:
            await self._tell(verdict.slots)  # or they are free when their lease has run out

    async def to_the_end(self, work: Coroutine[None, None, None]) -> None:
        """Do *work* even if the caller is cancelled meanwhile, as its request's end must be."""
        if not self.store.waits:
            await work
            return
        await asyncio.shield(self._keep(asyncio.ensure_future(work)))

    async def aclose(self) -> None:
        """Give back what the store holds open."""
        if self._undoing:
            await asyncio.wait(self._undoing)
        self.fallback.close()
        await self.store.aclose()

    async def _or_undo(
        self, asking: Coroutine[None, None, Verdict], undo: Callable[[Verdict], Awaitable[None]]
    ) -> Verdict:
        """Ask; if the caller is cancelled meanwhile, undo what the store may yet grant."""
        if not self.store.waits:
            return await asking
        asked = asyncio.ensure_future(asking)
        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            self._keep(asyncio.ensure_future(_undo(asked, undo)))
            raise

    def _keep(self, work: asyncio.Future[None]) -> asyncio.Future[None]:
        """The loop itself forgets tasks that nobody waits for."""
        self._undoing.add(work)
        work.add_done_callback(self._undoing.discard)
        return work

    async def _leave(self, verdict: Verdict) -> None:
        await self.release(verdict)
        await self.vacate(verdict)

    async def _give_up(self, verdict: Verdict) -> None:
        await self.give_back(verdict)
        await self.release(verdict)

    async def _decide(self, plan: Plan, *, consume: bool) -> Verdict:
        try:
            replies = await self._ask(plan.operation(consume=consume))
            seen = repeated(plan, replies)
            if seen:
                others = await self._ask(plan.again(seen, consume=consume))
                replies = (*others, *replies[1:])
            verdict = verdict_of(plan, replies, consumed=consume, without=seen)
        except StoreError as error:
            return self._without_store(plan, error, consume=consume)
        if self.fallback.wants_word:
            self.fallback.succeed()
        return verdict

    async def _ask(self, asked: TakeEach) -> tuple[Outcomes | StoreError, ...]:
        """Ask for *asked*; a take that stands alone by itself, with which a store may borrow."""
        if len(asked.takes) == 1:
            return (await self.store.arun(asked.takes[0]),)
        return await self.store.arun(asked)

    async def _reserve(self, plan: Plan, ttl_ns: int) -> Verdict:
        name = plan.lease or new_name()
        heard = [(one, *await self._hold(one, ttl_ns)) for one in holdings(plan, name)]
        verdict, held = self._reserved(plan, name, heard)
        if held is not None and not verdict.allowed:
            await self._tell(held.give_back)
            held = None
        return replace(verdict, held=held)

    async def _hold(
        self, holding: Holding, ttl_ns: int
    ) -> tuple[Outcomes | StoreError, frozenset[str]]:
        """Hold and take; what came of it, but for the rules that have seen the request before."""
        held: Outcomes = ()
        taken: Outcomes = ()
        try:
            if (hold := holding.hold(ttl_ns)) is not None:
                held = await self.store.arun(hold)
            granted = all(one.allowed for one in held)
            if (take := holding.take(consume=granted)) is not None:
                taken = await self.store.arun(take)
            if seen := holding.seen(taken):
                holding, taken = holding.without(seen), ()
                if (take := holding.take(consume=granted)) is not None:
                    taken = await self.store.arun(take)
            if granted and held and not all(one.allowed for one in taken):
                await self.store.arun(holding.undo()[0])
                held = await self.store.arun(holding.look())
        except StoreError as error:
            if held or not error.is_undone:  # later: the caller has waited long enough
                self._keep(asyncio.ensure_future(self._tell_all(holding.undo())))
            return error, frozenset()
        return holding.outcomes(held, taken), seen

    async def _tell_all(self, steps: Iterable[Operation[Any]]) -> None:
        for step in steps:
            await self._tell(step)

    async def _tell(self, step: Operation[Any]) -> bool:
        """As `Runner._tell`."""
        try:
            await self.store.arun(step)
        except StoreError:
            return False
        return True


async def _undo(asked: asyncio.Future[Verdict], undo: Callable[[Verdict], Awaitable[None]]) -> None:
    await undo(await asked)
