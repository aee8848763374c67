"""`RuleEngine` and `AsyncRuleEngine`: a policy and a store; request in, verdict out."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING

from headgate.engine.use_cases import Engine
from headgate.errors import StoreError
from headgate.observability.candidates import CANDIDATES, ShadowRule
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.explain import Explanation
from headgate.policy.limit_adjustment import Scale
from headgate.policy.policy_document import rule_to_data
from headgate.runtime.drivers import adrive, drive
from headgate.runtime.heartbeat import new_name
from headgate.stores.base import checked_cost
from headgate.units import duration_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headgate.clock import Clock
    from headgate.engine.plan import Plan
    from headgate.engine.request import Request
    from headgate.engine.verdict import Verdict
    from headgate.policy.compiled import Costs
    from headgate.policy.model import Policy, Rule
    from headgate.runtime.effects import Effects
    from headgate.stores.base import Store
    from headgate.units import Seconds


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
        """The factor by which pressure lowers limits, set by the watcher of that."""
        self._compile = partial(
            CompiledPolicy,
            salt=salt,
            namespace=namespace,
            clock=clock or time.time_ns,
            scale=self.scale,
        )
        self._lock = threading.Lock()
        self._listeners: list[Callable[[CompiledPolicy], None]] = []
        self.compiled = self._compile(policy)
        put_in_force(policy)

    @property
    def policy(self) -> Policy:
        return self.compiled.policy

    def subscribe(self, listener: Callable[[CompiledPolicy], None]) -> None:
        """Call *listener* with the compiled policy in force, and with each one before it is."""
        with self._lock:
            listener(self.compiled)
            self._listeners.append(listener)

    def replace(self, policy: Policy) -> int:
        """Put *policy* in force from the next request on; its revision.

        The number of its source counts, a lower one than before too. A policy without a number
        (0) is numbered here: one more than before, or the same if nothing has changed. A policy
        that cannot be put in force raises and changes nothing.
        """
        with self._lock:
            revision = policy.revision or self._next_revision(policy)
            compiled = self._compile(replace(policy, revision=revision))
            for listener in self._listeners:
                listener(compiled)
            put_in_force(compiled.policy, self.compiled.policy)
            self.compiled = compiled
        return revision

    def _next_revision(self, policy: Policy) -> int:
        before = self.compiled.policy
        is_same = replace(policy, revision=before.revision) == before
        return before.revision if is_same else before.revision + 1


class _Rules:
    """The policy in force and the use cases on a store, for both facades."""

    def __init__(
        self,
        policy: Policy,
        *,
        store: str | Store = "memory://",
        salt: bytes = b"",
        namespace: str = "headgate",
        clock: Clock | None = None,
    ) -> None:
        self.in_force = PolicyInForce(policy, salt=salt, namespace=namespace, clock=clock)
        self.engine = Engine(store, clock=clock)
        self.in_force.subscribe(
            lambda compiled: self.engine.set_accuracies(self, compiled.accuracies)
        )

    def replace(self, policy: Policy) -> int:
        """Put *policy* in force from the next request on; its revision."""
        return self.in_force.replace(policy)

    def _plan(self, request: Request, cost: Costs) -> Plan:
        return _plan_by(self.in_force.compiled, request, cost)

    def _explaining(self, request: Request, cost: Costs, *, raises: bool) -> Effects[Explanation]:
        compiled = self.in_force.compiled
        verdict = yield from self.engine.peek(_plan_by(compiled, request, cost), raises=raises)
        return Explanation(compiled, request, verdict)

    def _reserving(self, request: Request, cost: Costs, ttl: Seconds) -> Effects[Verdict]:
        ttl_ns, name = duration_ns(ttl, "ttl"), new_name()
        plan = self.in_force.compiled.plan(request, cost=cost, lease=name, is_estimate=True)
        return self.engine.reserve(plan, name, ttl_ns)

    def _settling(self, verdict: Verdict, actual: int | Mapping[str, int] | None) -> Effects[bool]:
        amounts = amounts_of(verdict, actual)
        try:
            return (yield from self.engine.settle(verdict, amounts))
        except StoreError:
            return False


class RuleEngine(_Rules):
    """Decide each request by the rules of a policy, for code that may block.

    *store* is a URL or a `Store`. Safe to share among threads; `replace` puts another policy in
    force while requests go on. *salt* is what secrets in keys are hashed with, *namespace* keeps
    the counters of different policies in one store apart. *clock* is for a store that takes one,
    and for the end of overrides.
    """

    def check(self, request: Request, *, cost: Costs = None) -> Verdict:
        """Allow *request* now, or say why not and when to retry. A denial consumes nothing.

        *cost* replaces the cost of the rules: for all, or by the id of a rule.
        """
        plan = self._plan(request, cost)
        verdict = self.engine.decide_now(plan)
        return drive(self.engine.decide(plan)) if verdict is None else verdict

    def peek(self, request: Request, *, cost: Costs = None) -> Verdict:
        """Say what `check` would say now; nothing is consumed."""
        return drive(self.engine.peek(self._plan(request, cost)))

    def explain(self, request: Request, *, cost: Costs = None, raises: bool = False) -> Explanation:
        """Say what `check` would say now, and why; nothing is consumed.

        If it *raises*, a store that is gone is a `StoreError`, not decided by the failure policies.
        """
        return drive(self._explaining(request, cost, raises=raises))

    def reserve(self, request: Request, *, cost: Costs, ttl: Seconds = 60) -> Verdict:
        """Check with a cost that is an estimate: it is held, and must be settled.

        With costs by rule only those rules are held; the others are charged at once. A hold that
        is not settled expires after *ttl* seconds.
        """
        return drive(self._reserving(request, cost, ttl))

    def settle(self, verdict: Verdict, actual: int | Mapping[str, int] | None = None) -> bool:
        """Charge what a request really cost, in full even beyond what was held.

        *actual* is for all rules that hold something, or by the id of a rule; by default what was
        held. True if the store was reached and still held it. Once: `SettledError` after that,
        unless the store could not be reached.
        """
        return drive(self._settling(verdict, actual))

    def refund(self, verdict: Verdict) -> None:
        """Give back all that a request was charged, and what is held for it; once."""
        drive(self.engine.refund(verdict))

    def release(self, verdict: Verdict) -> None:
        """Release the slots that a request holds; call it at its end, denied or not."""
        drive(self.engine.release(verdict))

    def close(self) -> None:
        """Release what the store holds open."""
        drive(self.engine.closing())


class AsyncRuleEngine(_Rules):
    """`RuleEngine` for an event loop."""

    async def check(self, request: Request, *, cost: Costs = None) -> Verdict:
        """Allow *request* now, or say why not: see `RuleEngine.check`."""
        plan = self._plan(request, cost)
        verdict = self.engine.decide_now(plan)
        return await adrive(self.engine.decide(plan)) if verdict is None else verdict

    async def peek(self, request: Request, *, cost: Costs = None) -> Verdict:
        """Say what `check` would say now; nothing is consumed."""
        return await adrive(self.engine.peek(self._plan(request, cost)))

    async def explain(
        self, request: Request, *, cost: Costs = None, raises: bool = False
    ) -> Explanation:
        """Say what `check` would say now, and why: see `RuleEngine.explain`."""
        return await adrive(self._explaining(request, cost, raises=raises))

    async def reserve(self, request: Request, *, cost: Costs, ttl: Seconds = 60) -> Verdict:
        """Check with a cost that is an estimate: see `RuleEngine.reserve`."""
        return await adrive(self._reserving(request, cost, ttl))

    async def settle(self, verdict: Verdict, actual: int | Mapping[str, int] | None = None) -> bool:
        """Charge what a request really cost: see `RuleEngine.settle`."""
        return await adrive(self._settling(verdict, actual))

    async def refund(self, verdict: Verdict) -> None:
        """Give back all that a request was charged, and what is held for it; once."""
        await adrive(self.engine.refund(verdict))

    async def release(self, verdict: Verdict) -> None:
        """Release the slots that a request holds; call it at its end, denied or not."""
        await adrive(self.engine.release(verdict))

    async def aclose(self) -> None:
        """Release what the store holds open."""
        await adrive(self.engine.closing())


def _plan_by(compiled: CompiledPolicy, request: Request, cost: Costs) -> Plan:
    return compiled.plan(request, cost=cost, lease=new_name() if compiled.has_slots else None)


def amounts_of(verdict: Verdict, actual: int | Mapping[str, int] | None) -> Mapping[str, int]:
    """The amount to settle each rule of *verdict* for that holds something."""
    if actual is None:
        return {}
    if not isinstance(actual, Mapping):
        checked_cost(actual, "actual")
        return {} if verdict.held is None else dict.fromkeys(verdict.held.ids, actual)
    for rule, amount in actual.items():
        checked_cost(amount, f"the actual cost under {rule!r}")
    return actual


# Versions of shadow rules, so that their figures begin again when one changes.


def put_in_force(policy: Policy, before: Policy | None = None) -> None:
    """Count for the rules in shadow of *policy*, which takes the place of *before*."""
    versioned = list(_versioned(policy))
    names = {one.rule_id for one in versioned}
    gone = [] if before is None else [one.id for one in _shadows(before) if one.id not in names]
    if versioned or gone:
        CANDIDATES.put_in_force(versioned, revision=policy.revision, gone=gone)


def _shadows(policy: Policy) -> list[Rule]:
    return [rule for rule in policy.rules if rule.mode == "shadow" and rule.fair is None]


def _versioned(policy: Policy) -> Iterator[ShadowRule]:
    shadows = _shadows(policy)
    by_id = {rule.id: rule for rule in policy.rules} if shadows else {}
    for rule in shadows:
        live = by_id.get(rule.candidate_of or "")
        yield ShadowRule(rule.id, rule.candidate_of, _version(rule, live))


def _version(rule: Rule, live: Rule | None) -> str:
    """A digest of *rule* and its *live* rule, without the fields that change no decision."""
    both = [rule_to_data(one) for one in (rule, live) if one is not None]
    for data in both:
        data.pop("description", None)
        data.pop("mode", None)
    text = json.dumps(both, sort_keys=True)
    return blake2b(text.encode(), digest_size=8).hexdigest()
