"""The rules of a policy with a store: request in, verdict out. A blocking shell, an async one."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from headgate.engine.limit_adjustment import Scale
from headgate.engine.planner import Engine
from headgate.engine.records import put_in_force
from headgate.engine.runner import AsyncRunner, Runner
from headgate.runtime.holds import new_name
from headgate.stores.base import checked_cost
from headgate.units import duration_ns

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.clock import Clock
    from headgate.engine.plan import Plan
    from headgate.engine.planner import Costs
    from headgate.engine.verdict import Verdict
    from headgate.policy.model import Policy
    from headgate.policy.request import Request
    from headgate.stores.base import Store
    from headgate.units import Seconds


# The policy in force: replaced as a whole, its revision only ever growing.


class PolicyInForce:
    """The engine of the policy in force. Reading it is one attribute; replacing it is atomic."""

    def __init__(
        self,
        policy: Policy,
        *,
        salt: bytes = b"",
        namespace: str = "headgate",
        clock: Clock | None = None,
    ) -> None:
        self.scale = Scale()
        """What pressure has brought limits down to; whoever watches that sets it."""
        self._new_engine = partial(
            Engine, salt=salt, namespace=namespace, clock=clock, scale=self.scale
        )
        self._lock = threading.Lock()
        self._listeners: list[Callable[[Engine], None]] = []
        self.engine = self._new_engine(policy)
        put_in_force(policy)

    @property
    def policy(self) -> Policy:
        return self.engine.policy

    def tell(self, listener: Callable[[Engine], None]) -> None:
        """Have *listener* told the engine that is in force, and each one that is about to be."""
        with self._lock:
            listener(self.engine)
            self._listeners.append(listener)

    def replace(self, policy: Policy) -> int:
        """Put *policy* in force from the next request on; its revision, greater than all before.

        A policy that cannot be put in force raises and changes nothing.
        """
        with self._lock:
            revision = max(policy.revision, self.engine.policy.revision + 1)
            engine = self._new_engine(replace(policy, revision=revision))
            for listener in self._listeners:
                listener(engine)
            put_in_force(engine.policy, self.engine.policy)
            self.engine = engine
        return revision


class _Rules:
    """What both shells have in common."""

    def __init__(self, policy: Policy, salt: bytes, namespace: str, clock: Clock | None) -> None:
        self.in_force = PolicyInForce(policy, salt=salt, namespace=namespace, clock=clock)

    def replace(self, policy: Policy) -> int:
        """Put *policy* in force from the next request on; its revision."""
        return self.in_force.replace(policy)

    def _plan(self, request: Request, cost: Costs) -> Plan:
        engine = self.in_force.engine
        return engine.plan(request, cost=cost, lease=new_name() if engine.has_slots else None)

    def _plan_open(self, request: Request, cost: Costs) -> Plan:
        return self.in_force.engine.plan(request, cost=cost, lease=new_name(), is_estimate=True)


class RuleEngine(_Rules):
    """Decide for each request by the rules of a policy, for code that may block.

    *store* is a URL or a `Store`. Safe to share among threads; `replace` puts another policy in
    force while requests go on. *clock* is for a store that takes one, and for when overrides end.
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
        self.runner = Runner(store, clock=clock)
        self.in_force.tell(lambda engine: self.runner.adopt(engine.terms))

    def check(self, request: Request, *, cost: Costs = None) -> Verdict:
        """Admit *request* now, or say why not. A refusal consumes nothing.

        *cost* takes the place of what the rules say: for all, or by the id of a rule.
        """
        return self.runner.decide(self._plan(request, cost))

    def peek(self, request: Request, *, cost: Costs = None) -> Verdict:
        """What `check` would say now; nothing is consumed."""
        return self.runner.decide(self._plan(request, cost), consume=False)

    def reserve(self, request: Request, *, cost: Costs, ttl: Seconds = 60) -> Verdict:
        """As `check`, for a cost that is an estimate: it is held, and must be settled.

        With costs by rule only those rules are held; the others are charged as ever. What is not
        settled lapses after *ttl* seconds.
        """
        return self.runner.reserve(self._plan_open(request, cost), duration_ns(ttl, "ttl"))

    def settle(self, verdict: Verdict, actual: int | Mapping[str, int] | None = None) -> bool:
        """Charge what a request really cost, in full even beyond what was held.

        *actual* is for all rules that hold something, or by the id of a rule; what is not said
        is what was held. Whether it could be told to the store and was still held. Once:
        `SettledError` after that, unless the store could not be told.
        """
        return self.runner.settle(verdict, amounts_of(verdict, actual))

    def refund(self, verdict: Verdict) -> None:
        """Give back all that a request was charged, and what is held for it; once."""
        self.runner.give_back(verdict)

    def release(self, verdict: Verdict) -> None:
        """Give back the slots that a request holds; to be called at its end, refused or not."""
        self.runner.release(verdict)

    def close(self) -> None:
        """Give back what the store holds open."""
        self.runner.close()


class AsyncRuleEngine(_Rules):
    """The same for an event loop."""

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
        self.runner = AsyncRunner(store, clock=clock)
        self.in_force.tell(lambda engine: self.runner.adopt(engine.terms))

    async def check(self, request: Request, *, cost: Costs = None) -> Verdict:
        """As `RuleEngine.check`."""
        return await self.runner.decide(self._plan(request, cost))

    async def peek(self, request: Request, *, cost: Costs = None) -> Verdict:
        """As `RuleEngine.peek`."""
        return await self.runner.decide(self._plan(request, cost), consume=False)

    async def reserve(self, request: Request, *, cost: Costs, ttl: Seconds = 60) -> Verdict:
        """As `RuleEngine.reserve`."""
        return await self.runner.reserve(self._plan_open(request, cost), duration_ns(ttl, "ttl"))

    async def settle(self, verdict: Verdict, actual: int | Mapping[str, int] | None = None) -> bool:
        """As `RuleEngine.settle`."""
        return await self.runner.settle(verdict, amounts_of(verdict, actual))

    async def refund(self, verdict: Verdict) -> None:
        """As `RuleEngine.refund`."""
        await self.runner.give_back(verdict)

    async def release(self, verdict: Verdict) -> None:
        """As `RuleEngine.release`."""
        await self.runner.release(verdict)

    async def aclose(self) -> None:
        """Give back what the store holds open."""
        await self.runner.aclose()


def amounts_of(verdict: Verdict, actual: int | Mapping[str, int] | None) -> Mapping[str, int]:
    """What each rule of *verdict* that holds something is to be settled for."""
    if actual is None:
        return {}
    if not isinstance(actual, Mapping):
        checked_cost(actual, "actual")
        return {} if verdict.held is None else dict.fromkeys(verdict.held.ids, actual)
    for rule, amount in actual.items():
        checked_cost(amount, f"the actual cost under {rule!r}")
    return actual
