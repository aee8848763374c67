"""The fair queues of an app: one for each rule with `fair`, in this process.

They follow the policy. A queue whose rule has changed goes on with the requests that wait in it.
One whose rule is gone serves those that wait, and is dropped at the next change of the policy.
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
from headgate.runtime.effects import Effect
from headgate.units import SECOND, seconds_at_least

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping

    from headgate.clock import Clock
    from headgate.engine.plan import Queueing
    from headgate.engine.rule import CompiledRule, Priority
    from headgate.overload import Turn
    from headgate.policy.compiled import CompiledPolicy
    from headgate.policy.model import Fair

    Meanwhile = Callable[[Coroutine[Any, Any, "Places"]], Awaitable["Places"]]
    """A function that waits for places and does something else meanwhile."""

G = TypeVar("G", FairGate, AsyncFairGate)

SOON_NS: Final = SECOND
"""The wait of a denial by a queue that cannot estimate it."""

Places = tuple[tuple["Turn", ...], "Queueing | None"]
"""The places of a request; or the one that was denied, and the queue."""


class HeldPlaces(tuple["Turn", ...]):
    """The places of a request. It gives them up when it is collected: some servers and test clients
    drop a response without closing it."""

    __slots__ = ()

    def __del__(self) -> None:
        for turn in self:
            turn.abandon()


class FairQueues:
    """The queues of an app, made on demand: for threads and for event loops. A queue of one kind
    does not wait for that of the other."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        self._fair: dict[str, Fair] = {}
        self._gates: dict[str, tuple[Fair, FairGate]] = {}
        self._async_gates: dict[str, tuple[Fair, AsyncFairGate]] = {}
        self._lock = threading.Lock()
        # A clock for tests may make time pass by itself.
        self._sleep: Callable[[float], object] = getattr(clock, "sleep", time.sleep)
        self._asleep: Callable[[float], Awaitable[object]] = getattr(clock, "asleep", asyncio.sleep)
        watch_forks(self)

    def adopt(self, compiled: CompiledPolicy) -> None:
        """Use the rules of *compiled* from now on."""
        fair = {rule.id: rule.fair for rule in compiled.policy.rules if rule.fair is not None}
        with self._lock:
            self._fair = fair
            self._gates = _still_needed(self._gates, fair)
            self._async_gates = _still_needed(self._async_gates, fair)

    def after_fork(self) -> None:
        """Replace the lock: a thread of the parent process may have had it."""
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        """The requests that wait in all queues."""
        return sum(gate.depth for gate in self.gates())

    def gates(self) -> Iterator[FairGate | AsyncFairGate]:
        """All queues."""
        for _, gate in [*self._gates.values()]:
            yield gate
        for _, async_gate in [*self._async_gates.values()]:
            yield async_gate

    def gate(self, rule: CompiledRule) -> FairGate:
        """The queue of *rule* for threads."""
        fair = self._fair.get(rule.id, rule.declared.fair)
        known = self._gates.get(rule.id)
        if known is not None and known[0] is fair:
            return known[1]
        with self._lock:
            return _changed(self._gates, rule, fair, FairGate, self._clock)

    def async_gate(self, rule: CompiledRule) -> AsyncFairGate:
        """The queue of *rule* for an event loop."""
        fair = self._fair.get(rule.id, rule.declared.fair)
        known = self._async_gates.get(rule.id)
        if known is not None and known[0] is fair:
            return known[1]
        with self._lock:
            return _changed(self._async_gates, rule, fair, AsyncFairGate, self._clock)

    def enter(self, delay_ns: int, queues: Iterable[Queueing]) -> Places:
        """Wait *delay_ns* for a place in a queue of the store, then for one in each of *queues*."""
        if delay_ns:
            with WAITING:
                self._sleep(seconds_at_least(delay_ns))
        with ExitStack() as undoing:
            turns: list[Turn] = []
            for one in queues:
                turn = self.gate(one.rule).enter(
                    one.key, cost=one.cost, weight=one.weight, priority=one.priority
                )
                if not turn:
                    return (turn,), one
                undoing.callback(turn.cancel)
                turns.append(turn)
            undoing.pop_all()
            return tuple(turns), None

    async def enter_async(self, delay_ns: int, queues: Iterable[Queueing]) -> Places:
        """`enter` in an event loop; a request that is cancelled gives its places up."""
        if delay_ns:
            with WAITING:
                await self._asleep(seconds_at_least(delay_ns))
        with ExitStack() as undoing:
            turns: list[Turn] = []
            for one in queues:
                turn = await self.async_gate(one.rule).enter(
                    one.key, cost=one.cost, weight=one.weight, priority=one.priority
                )
                if not turn:
                    return (turn,), one
                undoing.callback(turn.cancel)
                turns.append(turn)
            undoing.pop_all()
            return tuple(turns), None

    def try_enter(self, queues: Iterable[Queueing]) -> tuple[Turn, ...] | None:
        """The places if all are free, for an event loop; None, and none is taken, if not."""
        turns: tuple[Turn, ...] = ()
        for one in queues:
            try:
                turn = self.async_gate(one.rule).try_enter(one.key, one.cost, priority=one.priority)
            except BaseException:  # it may be in use in another loop
                _cancel(turns)
                raise
            if turn is None:
                _cancel(turns)
                return None
            turns += (turn,)
        return turns

    def loads(self, queues: Iterable[Queueing]) -> list[Load]:
        """The loads of the queues that a request was in, for its response."""
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
        """Deny the requests that wait in threads."""
        with self._lock:
            gates, self._gates = self._gates, {}
        for _, gate in gates.values():
            gate.close()

    async def aclose(self) -> None:
        """Deny all requests that wait."""
        self.close()
        with self._lock:
            gates, self._async_gates = self._async_gates, {}
        for _, gate in gates.values():
            await gate.aclose()


class WaitForPlaces(Effect):
    """Wait *delay_ns*, then for a place in each of *queues*; the result is `Places`."""

    __slots__ = ("delay_ns", "fair_queues", "meanwhile", "queues")

    def __init__(
        self,
        fair_queues: FairQueues,
        delay_ns: int,
        queues: tuple[Queueing, ...],
        meanwhile: Meanwhile | None,
    ) -> None:
        self.fair_queues = fair_queues
        self.delay_ns = delay_ns
        self.queues = queues
        self.meanwhile = meanwhile

    def perform(self) -> Places:
        return self.fair_queues.enter(self.delay_ns, self.queues)

    async def aperform(self) -> Places:
        if not self.delay_ns and (turns := self.fair_queues.try_enter(self.queues)) is not None:
            return turns, None
        waiting = self.fair_queues.enter_async(self.delay_ns, self.queues)
        return await (waiting if self.meanwhile is None else self.meanwhile(waiting))


def _changed(
    gates: dict[str, tuple[Fair, G]],
    rule: CompiledRule,
    fair: Fair | None,
    kind: type[G],
    clock: Clock | None,
) -> G:
    """The queue of *rule* in *gates*, made or changed as *fair* says."""
    assert fair is not None  # noqa: S101 (mypy: only rules with it are queued for)
    known = gates.get(rule.id)
    if known is None:
        gate = kind(**_options(fair), clock=clock, name=rule.id)
    else:
        before, gate = known
        if before is not fair:  # another thread has not been quicker
            gate.configure(**_options(fair, before))
    gates[rule.id] = fair, gate
    return gate


def _still_needed(
    gates: dict[str, tuple[Fair, G]], fair: Mapping[str, Fair]
) -> dict[str, tuple[Fair, G]]:
    """The queues of *gates* whose rules are in *fair*, or that are in use."""
    return {
        rule: (own, gate)
        for rule, (own, gate) in gates.items()
        if rule in fair or gate.in_flight or gate.depth
    }


def _options(fair: Fair, before: Fair | None = None) -> dict[str, Any]:
    """The options of the queue of *fair*. Adaptive slots keep their number if they adapt as
    *before*."""
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


def denial_by(queueing: Queueing, turn: Turn, revision: int) -> Verdict:
    """The verdict on a request that got no place in a queue."""
    rule, key, cost = queueing.rule, queueing.key, queueing.cost
    wait_ns = SOON_NS if turn.retry_after_ns is None else turn.retry_after_ns
    denial = RuleVerdict(rule, key, cost, turned_away(rule.id, wait_ns).decision)
    plan = Plan(revision, (RulePlan(rule, key, cost, (), (), sheds=True),), queues=(queueing,))
    verdict = Verdict(allowed=False, revision=revision, rules=(denial,), plan=plan)
    return record_denial(verdict, "gate")


def load_of(
    name: str,
    gate: FairGate | AsyncFairGate,
    tenant: str,
    weight: int | None = None,
    priority: Priority = "default",
) -> Load:
    """The load of *gate*. The wait is that of one more request of *tenant*."""
    return Load(name, *gate.standing(tenant, weight, priority))
