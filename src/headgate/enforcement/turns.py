"""Where the requests of an app take turns: a gate for each rule with `fair`, in this process.

The gates follow the policy: one whose rule has changed goes on with those who wait in it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headgate.engine import Plan, RulePlan, RuleVerdict, Verdict
from headgate.responses.answer import turned_away
from headgate.responses.pressure import Load
from headgate.shaping import AsyncFairGate, FairGate
from headgate.shaping.adaptive import steering_of
from headgate.units import SECOND, seconds_at_least

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from headgate.clock import Clock
    from headgate.engine import Engine
    from headgate.engine.plan import Queueing
    from headgate.rules.model import Rule
    from headgate.rules.soft import Fair
    from headgate.shaping import Turn

G = TypeVar("G", FairGate, AsyncFairGate)

SOON_NS: Final = SECOND
"""What those are told to wait whose gate cannot say how long it will take."""

Came = tuple[list["Turn"], "Queueing | None"]
"""The turns of a request; or the one that was refused alone, and where."""


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

    def adopt(self, engine: Engine) -> None:
        """From now on take turns as the rules of *engine* say."""
        self._fair = {rule.id: rule.fair for rule in engine.policy.rules if rule.fair is not None}

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

    def gate(self, rule: Rule) -> FairGate:
        """The gate of *rule*, for code that blocks."""
        return self._found(self._gates, rule, FairGate)

    def async_gate(self, rule: Rule) -> AsyncFairGate:
        """The gate of *rule*, for an event loop."""
        return self._found(self._async_gates, rule, AsyncFairGate)

    def sleep(self, delay_ns: int) -> None:
        """Wait for a turn in a queue that a store keeps."""
        self._sleep(seconds_at_least(delay_ns))

    async def sleep_async(self, delay_ns: int) -> None:
        """The same in an event loop."""
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
                left.callback(turn.release)
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
                left.callback(turn.release)
                turns.append(turn)
            left.pop_all()
            return turns, None

    def try_enter_async(self, queues: Iterable[Queueing]) -> tuple[Turn, ...] | None:
        """The turns if all can be had at once; None if one must be waited for, and none is had."""
        turns: list[Turn] = []
        for one in queues:
            gate = self.async_gate(one.rule)
            turn = gate.try_enter(one.key, one.cost, priority=one.priority)
            if turn is None:
                for other in turns:
                    other.release()
                return None
            turns.append(turn)
        return tuple(turns)

    def loads(self, rules: Iterable[str]) -> Iterator[Load]:
        """How the gates of *rules* stand."""
        for rule in rules:
            for gates in (self._gates, self._async_gates):
                if rule in gates:
                    yield load_of(rule, gates[rule][1])

    def close(self) -> None:
        """Refuse all who wait in code that blocks."""
        gates, self._gates = self._gates, {}
        for _, gate in gates.values():
            gate.close()

    async def aclose(self) -> None:
        """Refuse all who wait."""
        self.close()
        gates, self._async_gates = self._async_gates, {}
        for _, gate in gates.values():
            await gate.aclose()

    def _found(self, gates: dict[str, tuple[Fair, G]], rule: Rule, kind: type[G]) -> G:
        fair = self._fair.get(rule.id, rule.fair)
        assert fair is not None  # noqa: S101 (mypy: only rules with it are queued for)
        known = gates.get(rule.id)
        if known is not None and known[0] is fair:
            return known[1]
        with self._making:
            known = gates.get(rule.id)
            if known is None:
                gate = kind(**_options(fair), clock=self._clock, name=rule.id)
            else:
                before, gate = known
                gate.configure(**_options(fair, before))
            gates[rule.id] = fair, gate
        return gate


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


def refusal_by(queueing: Queueing, turn: Turn, revision: int) -> Verdict:
    """The verdict on a request that was refused its turn."""
    rule, key, cost = queueing.rule, queueing.key, queueing.cost
    wait_ns = SOON_NS if turn.retry_after_ns is None else turn.retry_after_ns
    decision = turned_away(rule.id, wait_ns).decision
    asked = RulePlan(rule, key, cost, (), (), sheds=True)
    plan = Plan(revision, (asked,), queues=(queueing,))
    said = RuleVerdict(rule, key, cost, decision)
    return Verdict(allowed=False, revision=revision, rules=(said,), plan=plan)


def load_of(rule: str, gate: FairGate | AsyncFairGate) -> Load:
    """How the *gate* of *rule* stands, for those who would slow down."""
    wait = gate.expected_wait
    return Load(rule, gate.depth, round((wait or 0) * SECOND), gate.in_flight, gate.limit)
