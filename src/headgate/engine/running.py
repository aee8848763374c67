"""The engine with a store: plan, one round trip, conclude. A blocking shell and an async one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.engine.conclusion import verdict_of, verdict_without_store
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

    def _without_store(self, plan: Plan) -> Verdict:
        """The store could not decide: rules that are `local` are decided here, in full."""
        local: dict[str, Decision] = {}
        for one in plan.rules:
            if one.rule.on_store_failure == "local":
                outcomes = self._local.run(Take(one.checks, lease=plan.lease))
                local[one.rule.id] = conclude(one.checks, outcomes, source="local")
        return verdict_without_store(plan, local)


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
        """Give back the slots that a request was granted; without a word if the store is gone."""
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
            return verdict_of(plan, replies, consumed=consume)
        except StoreError:
            return self._without_store(plan)


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

    async def check(self, request: Request, *, cost: int | None = None) -> Verdict:
        """As `RuleEngine.check`."""
        return await self._decide(self._plan(request, cost), consume=True)

    async def peek(self, request: Request, *, cost: int | None = None) -> Verdict:
        """As `RuleEngine.peek`."""
        return await self._decide(self._plan(request, cost), consume=False)

    async def release(self, verdict: Verdict) -> None:
        """As `RuleEngine.release`."""
        if verdict.slots is None:
            return
        try:
            await self._store.run(verdict.slots)
        except StoreError:
            return  # they are free when their lease has run out

    async def aclose(self) -> None:
        """Give back what the store holds open."""
        await self._store.aclose()

    async def _decide(self, plan: Plan, *, consume: bool) -> Verdict:
        operation = plan.operation(consume=consume)
        if operation is None:
            return Verdict(allowed=True, revision=plan.revision)
        try:
            replies = await self._store.run(operation)
            return verdict_of(plan, replies, consumed=consume)
        except StoreError:
            return self._without_store(plan)
