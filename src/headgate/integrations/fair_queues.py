"""The fair queues of an app: one for each rule with `fair`, in this process.

They follow the policy. A queue whose rule has changed goes on with the requests that wait in it.
One whose rule is gone serves those that wait, and is dropped at the next change of the policy.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from headgate.engine.plan import Plan, RulePlan
from headgate.engine.recorder import record_denial
from headgate.engine.verdict import Verdict
from headgate.fork import watch_forks
from headgate.overload import AsyncFairGate, FairGate
from headgate.overload.adaptive import steering_of
from headgate.overload.shaper import WAITING
from headgate.responses.answer import queue_denial
from headgate.responses.pressure import Load
from headgate.runtime.drivers import adrive, drive
from headgate.runtime.effects import Call, Effect, Sleep
from headgate.units import SECOND, seconds_at_least

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable

    from headgate.clock import Clock
    from headgate.engine.plan import CompiledRule, Queueing
    from headgate.overload import Place
    from headgate.policy.compiled import CompiledPolicy
    from headgate.policy.model import Fair
    from headgate.runtime.effects import Effects

    Meanwhile = Callable[[Coroutine[Any, Any, "Places"]], Awaitable["Places"]]
    """A function that waits for places and does something else meanwhile."""

G = TypeVar("G", FairGate, AsyncFairGate)

SOON_NS: Final = SECOND
"""The wait of a denial by a queue that cannot estimate it."""

Places = tuple[tuple["Place", ...], "Queueing | None"]
"""The places of a request; or the one that was denied, and the queue."""


class HeldPlaces(tuple["Place", ...]):
    """The places of a request. It gives them up when it is collected: some servers and test clients
    drop a response without closing it."""

    __slots__ = ()

    def __del__(self) -> None:
        for place in self:
            place.abandon()


class FairQueues:
    """The queues of an app, made on demand: for threads and for event loops. A queue of one kind
    does not wait for that of the other."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        self._fair: dict[str, Fair] = {}
        self._gates: dict[tuple[type, str], tuple[Fair | None, Any]] = {}
        """By kind and rule: the options that a queue was made with, and the queue."""
        self._lock = threading.Lock()
        watch_forks(self)

    def adopt(self, compiled: CompiledPolicy) -> None:
        """Use the rules of *compiled* from now on."""
        fair = {rule.id: rule.fair for rule in compiled.policy.rules if rule.fair is not None}
        with self._lock:
            self._fair = fair
            self._gates = {
                (kind, rule): (own, gate)
                for (kind, rule), (own, gate) in self._gates.items()
                if rule in fair or gate.in_flight or gate.depth
            }

    def after_fork(self) -> None:
        """Replace the lock: a thread of the parent process may have had it."""
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        """The requests that wait in all queues."""
        return sum(gate.depth for gate in self.gates())

    def gates(self) -> list[FairGate | AsyncFairGate]:
        """All queues."""
        return [gate for _, gate in [*self._gates.values()]]

    def gate(self, rule: CompiledRule, kind: type[G]) -> G:
        """The queue of *rule* for threads or for an event loop, by its *kind*."""
        fair: Fair | None = self._fair.get(rule.id, rule.declared.fair)
        assert fair is not None  # noqa: S101 (mypy: only rules with it are queued for)
        before, gate = self._gates.get((kind, rule.id), (None, None))
        if gate is not None and before is fair:
            return cast("G", gate)
        with self._lock:
            before, gate = self._gates.get((kind, rule.id), (None, None))
            if gate is None:
                gate = kind(**_options(fair), clock=self._clock, name=rule.id)
            elif before is not fair:  # another thread has not been quicker
                gate.configure(**_options(fair, before))
            self._gates[kind, rule.id] = fair, gate
            return cast("G", gate)

    def arguments(self, one: Queueing) -> dict[str, Any]:
        """The arguments with which *one* requests its place."""
        return {"cost": one.cost, "weight": one.weight, "priority": one.priority}

    def entering(self, kind: type[G], delay_ns: int, queues: Iterable[Queueing]) -> Effects[Places]:
        """Wait *delay_ns* for a place in a queue of the store, then for one in each of *queues*.

        A request that is cancelled gives its places up.
        """
        if delay_ns:
            with WAITING:
                yield Sleep(seconds_at_least(delay_ns), self._clock)
        with ExitStack() as undoing:
            places: list[Place] = []
            for one in queues:
                enter = self.gate(one.rule, kind).enter
                place: Place = yield Call(partial(enter, one.key, **self.arguments(one)))
                if not place:
                    return (place,), one
                undoing.callback(place.cancel)
                places.append(place)
            undoing.pop_all()
            return tuple(places), None

    def try_enter(self, queues: Iterable[Queueing]) -> tuple[Place, ...] | None:
        """The places if all are free, for an event loop; None, and none is taken, if not."""
        with ExitStack() as undoing:  # a queue may be in use in another loop, which raises
            places: list[Place] = []
            for one in queues:
                gate = self.gate(one.rule, AsyncFairGate)
                place = gate.try_enter(one.key, one.cost, priority=one.priority)
                if place is None:
                    return None
                undoing.callback(place.cancel)
                places.append(place)
            undoing.pop_all()
            return tuple(places)

    def loads(self, one: Queueing) -> list[Load]:
        """The loads of the queues of a request, for its response. The wait is that of one more
        request with its key."""
        rule = one.rule
        known = (self._gates.get((kind, rule.id)) for kind in (AsyncFairGate, FairGate))
        return [
            Load(rule.id, *found[1].standing(one.key, one.weight, one.priority))
            for found in known
            if found is not None and rule.headers == "on"
        ]

    def close(self) -> None:
        """Deny the requests that wait in threads."""
        for gate in self._removed(FairGate):
            gate.close()

    async def aclose(self) -> None:
        """Deny all requests that wait."""
        self.close()
        for gate in self._removed(AsyncFairGate):
            await gate.aclose()

    def _removed(self, kind: type[G]) -> list[G]:
        with self._lock:
            places = [place for place in self._gates if place[0] is kind]
            return [self._gates.pop(place)[1] for place in places]


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
        return drive(self.fair_queues.entering(FairGate, self.delay_ns, self.queues))

    async def aperform(self) -> Places:
        if not self.delay_ns and (places := self.fair_queues.try_enter(self.queues)) is not None:
            return places, None
        waiting = adrive(self.fair_queues.entering(AsyncFairGate, self.delay_ns, self.queues))
        return await (waiting if self.meanwhile is None else self.meanwhile(waiting))


def _options(fair: Fair, before: Fair | None = None) -> dict[str, Any]:
    """The options of the queue of *fair*. Adaptive slots keep their number if they adapt as
    *before*."""
    options: dict[str, Any] = {
        "queue": fair.queue,
        "max_wait": fair.max_wait_ns / SECOND,
        "reserve": fair.reserve,
    }
    if fair.slots is None:
        options |= {"rate": fair.rate, "slots": None}
    elif isinstance(fair.slots, int):
        options |= {"slots": fair.slots, "rate": None}
    elif before is None or before.slots != fair.slots:
        options |= {"slots": steering_of(fair.slots), "rate": None}
    return options


def denial_by(queueing: Queueing, place: Place, revision: int) -> Verdict:
    """The verdict on a request that got no place in a queue."""
    rule, key, cost = queueing.rule, queueing.key, queueing.cost
    wait_ns = SOON_NS if place.retry_after_ns is None else place.retry_after_ns
    plan = Plan(revision, (RulePlan(rule, key, cost, (), (), sheds=True),), queues=(queueing,))
    decision = queue_denial(rule.id, wait_ns).decision
    return record_denial(Verdict(plan, (decision,), allowed=False), "gate")
