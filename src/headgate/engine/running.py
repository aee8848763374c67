"""The engine with a store: plan, one round trip, conclude. A blocking shell and an async one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from headgate.engine.conclusion import repeated, verdict_of, verdict_without_store
from headgate.engine.policies import PolicyInForce
from headgate.engine.verdict import Verdict
from headgate.errors import StoreError
from headgate.holding import new_name
from headgate.stores.memory import MemoryStore
from headgate.stores.opening import open_async_store, open_store
from headgate.stores.operations import Take
from headgate.stores.port import conclude

if TYPE_CHECKING:
    from headgate.clock import Clock
    from headgate.decisions import Decision
    from headgate.engine.plan import Plan
    from headgate.rules.model import Policy
    from headgate.rules.request import Request
    from headgate.stores.port import AsyncStore, Store


class _Running:
    """What both shells have in common."""

    def __init__(self, policy: Policy, salt: bytes, namespace: str, clock: Clock | None) -> None:
        self.in_force = PolicyInForce(policy, salt=salt, namespace=namespace)
        self._local = MemoryStore(clock=clock)

    def replace(self, policy: Policy) -> int:
        """Put *policy* in force from the next request on; its revision."""
        return self.in_force.replace(policy)

    def _plan(self, request: Request, cost: int | None) -> Plan:
        return self.in_force.engine.plan(request, cost=cost, lease=new_name())

    def _without_store(self, plan: Plan, *, consume: bool) -> Verdict:
        """The store could not decide: rules that are `local` are decided here, in full.

        All or nothing, as ever: if another rule refuses, they are only looked at.
        """
        locals_ = [one for one in plan.deciding if one.rule.on_store_failure == "local"]
        is_open = all(one.rule.on_store_failure != "fail_closed" for one in plan.deciding)
        local: dict[str, Decision] = {}
        checks = tuple(check for one in locals_ for check in one.checks)
        if checks:
            take = Take(checks, consume=consume and is_open, lease=plan.lease)
            told = self._local.run(take)
            outcomes = iter(told)
            for one in locals_:
                own = tuple(next(outcomes) for _ in one.checks)
                local[one.rule.id] = conclude(one.checks, own, source="local")
        verdict = verdict_without_store(plan, local)
        if not consume or not verdict.allowed:
            return verdict
        return replace(verdict, local_slots=plan.leaving(locals_))

    def _release_here(self, verdict: Verdict) -> None:
        if verdict.local_slots is not None:
            self._local.run(verdict.local_slots)


class RuleEngine(_Running):
    """Decide for each request by the rules of a policy, for code that may block.

    *store* is a URL or a `Store`. Safe to share among threads; `replace` puts another policy in
    force while requests go on.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        store: str | Store = "memory://",
        salt: bytes = b"",
        namespace: str = "headgate",
        clock: Clock | None = None,
    ) -> None:
        super().__init__(policy, salt, namespace, clock)
        self._store = open_store(store, clock)

    def check(self, request: Request, *, cost: int | None = None) -> Verdict:
        """Admit *request* now, or say why not. A refusal consumes nothing."""
        return self._decide(self._plan(request, cost), consume=True)

    def peek(self, request: Request, *, cost: int | None = None) -> Verdict:
        """What `check` would say now; nothing is consumed."""
        return self._decide(self._plan(request, cost), consume=False)

    def release(self, verdict: Verdict) -> None:
        """Give back the slots that a request holds, or its shadows do; to be called at its end,
        also of a refused one. Without a word if the store is gone."""
        self._release_here(verdict)
        if verdict.slots is None:
            return
        try:
            self._store.run(verdict.slots)
        except StoreError:
            return  # they are free when their lease has run out

    def close(self) -> None:
        """Give back what the store holds open."""
        self._store.close()

    def _decide(self, plan: Plan, *, consume: bool) -> Verdict:
        operation = plan.operation(consume=consume)
        if operation is None:
            return Verdict(allowed=True, revision=plan.revision)
        try:
            replies = self._store.run(operation)
            seen = repeated(plan, replies)
            if seen:
                others = self._store.run(plan.again(seen, consume=consume))
                replies = (*others, *replies[1:])
            return verdict_of(plan, replies, consumed=consume, without=seen)
        except StoreError:
            return self._without_store(plan, consume=consume)


class AsyncRuleEngine(_Running):
    """The same for an event loop."""

    def __init__(
        self,
        policy: Policy,
        *,
        store: str | Store | AsyncStore = "memory://",
        salt: bytes = b"",
        namespace: str = "headgate",
        clock: Clock | None = None,
    ) -> None:
        super().__init__(policy, salt, namespace, clock)
        self._store = open_async_store(store, clock)
        self._undoing: set[asyncio.Future[None]] = set()

    async def check(self, request: Request, *, cost: int | None = None) -> Verdict:
        """As `RuleEngine.check`."""
        return await self._decide(self._plan(request, cost), consume=True)

    async def peek(self, request: Request, *, cost: int | None = None) -> Verdict:
        """As `RuleEngine.peek`."""
        return await self._decide(self._plan(request, cost), consume=False)

    async def release(self, verdict: Verdict) -> None:
        """As `RuleEngine.release`."""
        self._release_here(verdict)
        if verdict.slots is None:
            return
        try:
            await self._store.run(verdict.slots)
        except StoreError:
            return  # they are free when their lease has run out

    async def aclose(self) -> None:
        """Give back what the store holds open."""
        if self._undoing:
            await asyncio.wait(self._undoing)
        await self._store.aclose()

    async def _decide(self, plan: Plan, *, consume: bool) -> Verdict:
        if plan.lease is None or not consume or not self._store.may_wait:
            return await self._ask(plan, consume=consume)
        asked = asyncio.ensure_future(self._ask(plan, consume=consume))
        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            undoing = asyncio.ensure_future(self._undo(asked))
            self._undoing.add(undoing)
            undoing.add_done_callback(self._undoing.discard)
            raise

    async def _undo(self, asked: asyncio.Future[Verdict]) -> None:
        """Give back the slots that a caller was granted who had gone away meanwhile."""
        await self.release(await asked)

    async def _ask(self, plan: Plan, *, consume: bool) -> Verdict:
        operation = plan.operation(consume=consume)
        if operation is None:
            return Verdict(allowed=True, revision=plan.revision)
        try:
            replies = await self._store.run(operation)
            seen = repeated(plan, replies)
            if seen:
                others = await self._store.run(plan.again(seen, consume=consume))
                replies = (*others, *replies[1:])
            return verdict_of(plan, replies, consumed=consume, without=seen)
        except StoreError:
            return self._without_store(plan, consume=consume)
