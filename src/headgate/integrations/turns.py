"""Where the requests of an app take turns: a gate for each rule with `fair`, in this process.

The gates follow the policy: one whose rule has changed goes on with those who wait in it. One whose
rule is gone lets those who wait have their turns, and is forgotten when the policy changes next: it
would still be there should the rule come back, with those who are in.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headgate.engine.plan import Plan, RulePlan
from headgate.engine.recorder import record_denial
from headgate.engine.verdict import RuleVerdict, Verdict
from headgate.fork import watch_forks
from headgate.overload import AsyncFairGate, FairGate
from headgate.overload.adaptive import steering_of
from headgate.overload.shaper import WAITING
from headgate.responses.answer import turned_away
from headgate.responses.pressure import Load
from headgate.units import SECOND, seconds_at_least

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from headgate.clock import Clock
    from headgate.engine.plan import Queueing
    from headgate.engine.rule import CompiledRule, Priority
    from headgate.overload import Turn
    from headgate.policy.compiled import CompiledPolicy
    from headgate.policy.model import Fair

G = TypeVar("G", FairGate, AsyncFairGate)

SOON_NS: Final = SECOND
"""What those are told to wait whose gate cannot say how long it will take."""

Came = tuple[list["Turn"], "Queueing | None"]
"""The turns of a request; or the one that was refused alone, and where."""


class Held(tuple["Turn", ...]):
    """The turns of a request. Those that it still has when it is forgotten are given back: there
    are servers and test clients that forget a response without closing it."""

    __slots__ = ()

    def __del__(self) -> None:
        for turn in self:
            turn.abandon()


class Turns:
    """The gates of an app, made when they are first asked for: for code that blocks, and for event
    loops. Both kinds do not take turns with each other."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        self._fair: dict[str, Fair] = {}
        self._gates: dict[str, tuple[Fair, FairGate]] = {}
        self._async_gates: dict[str, tuple[Fair, AsyncFairGate]] = {}
        self._making = threading.Lock()
        # A clock for tests may make time pass by itself.
        self._sleep: Callable[[float], object] = getattr(clock, "sleep", time.sleep)
        self._asleep: Callable[[float], Awaitable[object]] = getattr(clock, "asleep", asyncio.sleep)
        watch_forks(self)

    def adopt(self, engine: CompiledPolicy) -> None:
        """From now on take turns as the rules of *engine* say."""
        fair = {rule.id: rule.fair for rule in engine.policy.rules if rule.fair is not None}
        with self._making:
            self._fair = fair
            self._gates = _still_needed(self._gates, fair)
            self._async_gates = _still_needed(self._async_gates, fair)

    def after_fork(self) -> None:
        """In a forked process: no thread is left that would give a lock back."""
        self._making = threading.Lock()

    @property
    def waiting(self) -> int:
        """How many wait in all gates."""
        return sum(gate.depth for gate in self.gates())

    def gates(self) -> Iterator[FairGate | AsyncFairGate]:
        """All that are in use."""
        for _, gate in [*self._gates.values()]:
            yield gate
        for _, async_gate in [*self._async_gates.values()]:
            yield async_gate

    def gate(self, rule: CompiledRule) -> FairGate:
        """The gate of *rule*, for code that blocks."""
        fair = self._fair.get(rule.id, rule.declared.fair)
        known = self._gates.get(rule.id)
        if known is not None and known[0] is fair:
            return known[1]
        with self._making:
            return _changed(self._gates, rule, fair, FairGate, self._clock)

    def async_gate(self, rule: CompiledRule) -> AsyncFairGate:
        """The gate of *rule*, for an event loop."""
        fair = self._fair.get(rule.id, rule.declared.fair)
        known = self._async_gates.get(rule.id)
        if known is not None and known[0] is fair:
            return known[1]
        with self._making:
            return _changed(self._async_gates, rule, fair, AsyncFairGate, self._clock)

    def sleep(self, delay_ns: int) -> None:
        """Wait for a turn in a queue that a store keeps."""
        with WAITING:
            self._sleep(seconds_at_least(delay_ns))

    async def sleep_async(self, delay_ns: int) -> None:
        """The same in an event loop."""
        with WAITING:
            await self._asleep(seconds_at_least(delay_ns))

    def enter(self, queues: Iterable[Queueing]) -> Came:
        """Take turns everywhere; the turns, or the one that was refused alone and where."""
        with ExitStack() as left:
            turns: list[Turn] = []
            for one in queues:
                turn = self.gate(one.rule).enter(
                    one.key, cost=one.cost, weight=one.weight, priority=one.priority
                )
                if not turn:
                    return [turn], one
                left.callback(turn.cancel)
                turns.append(turn)
            left.pop_all()
            return turns, None

    async def enter_async(self, queues: Iterable[Queueing]) -> Came:
        """As `enter`; who is cancelled meanwhile gives back the turns it has."""
        with ExitStack() as left:
            turns: list[Turn] = []
            for one in queues:
                gate = self.async_gate(one.rule)
                turn = await gate.enter(
                    one.key, cost=one.cost, weight=one.weight, priority=one.priority
                )
                if not turn:
                    return [turn], one
                left.callback(turn.cancel)
                turns.append(turn)
            left.pop_all()
            return turns, None

    def try_enter_async(self, queues: Iterable[Queueing]) -> tuple[Turn, ...] | None:
        """The turns if all can be had at once; None if one must be waited for, and none is had."""
        turns: tuple[Turn, ...] = ()
        gates, fair = self._async_gates, self._fair
        for one in queues:
            known = gates.get(one.rule.id)
            if known is None or known[0] is not fair.get(one.rule.id):
                gate = self.async_gate(one.rule)
            else:
                gate = known[1]
            try:
                turn = gate.try_enter(one.key, one.cost, priority=one.priority)
            except BaseException:  # it may be in use in another loop
                _cancel(turns)
                raise
            if turn is None:
                _cancel(turns)
                return None
            turns += (turn,)
        return turns

    def loads(self, queues: Iterable[Queueing]) -> list[Load]:
        """How the gates stand at which a request took its turns, for whom it was sent by."""
        found = []
        for one in queues:
            rule = one.rule.id
            if one.rule.headers != "on":
                continue
            for gates in (self._async_gates, self._gates):
                known = gates.get(rule)
                if known is not None:
                    found.append(load_of(rule, known[1], one.key, one.weight, one.priority))
        return found

    def close(self) -> None:
        """Refuse all who wait in code that blocks."""
        with self._making:
            gates, self._gates = self._gates, {}
        for _, gate in gates.values():
            gate.close()

    async def aclose(self) -> None:
        """Refuse all who wait."""
        self.close()
        with self._making:
            gates, self._async_gates = self._async_gates, {}
        for _, gate in gates.values():
            await gate.aclose()


def _changed(
    gates: dict[str, tuple[Fair, G]],
    rule: CompiledRule,
    fair: Fair | None,
    kind: type[G],
    clock: Clock | None,
) -> G:
    """The gate of *rule* out of *gates*, made anew or changed to be as *fair* says."""
    assert fair is not None  # noqa: S101 (mypy: only rules with it are queued for)
    known = gates.get(rule.id)
    if known is None:
        gate = kind(**_options(fair), clock=clock, name=rule.id)
    else:
        before, gate = known
        if before is not fair:  # nobody else has been quicker
            gate.configure(**_options(fair, before))
    gates[rule.id] = fair, gate
    return gate


def _still_needed(
    gates: dict[str, tuple[Fair, G]], fair: Mapping[str, Fair]
) -> dict[str, tuple[Fair, G]]:
    """Of *gates* those whose rules are in *fair*, and those that somebody is in or waits at."""
    return {
        rule: (said, gate)
        for rule, (said, gate) in gates.items()
        if rule in fair or gate.in_flight or gate.depth
    }


def _options(fair: Fair, before: Fair | None = None) -> dict[str, Any]:
    """How a gate is to be as *fair* says. Slots that move go on from where they are, if they are
    to move as they did *before*."""
    options: dict[str, Any] = {
        "queue": fair.queue,
        "max_wait": fair.max_wait_ns / SECOND,
        "reserve": fair.reserve,
    }
    if fair.rate is not None:
        options |= {"rate": fair.rate, "slots": None}
    elif fair.adaptive is None:
        options |= {"slots": fair.slots, "rate": None}
    elif before is None or before.adaptive != fair.adaptive:
        options |= {"slots": steering_of(fair.adaptive), "rate": None}
    return options


def _cancel(turns: Iterable[Turn]) -> None:
    for turn in turns:
        turn.cancel()


def refusal_by(queueing: Queueing, turn: Turn, revision: int) -> Verdict:
    """The verdict on a request that was refused its turn."""
    rule, key, cost = queueing.rule, queueing.key, queueing.cost
    wait_ns = SOON_NS if turn.retry_after_ns is None else turn.retry_after_ns
    decision = turned_away(rule.id, wait_ns).decision
    asked = RulePlan(rule, key, cost, (), (), sheds=True)
    plan = Plan(revision, (asked,), queues=(queueing,))
    said = RuleVerdict(rule, key, cost, decision)
    refusal = Verdict(allowed=False, revision=revision, rules=(said,), plan=plan)
    return record_denial(refusal, "gate")


def load_of(
    name: str,
    gate: FairGate | AsyncFairGate,
    tenant: str,
    weight: int | None = None,
    priority: Priority = "default",
) -> Load:
    """How *gate* stands, for those who would slow down: the wait is that of one more of *tenant*,
    since another's says nothing to one who has many waiting."""
    return Load(name, *gate.standing(tenant, weight, priority))
