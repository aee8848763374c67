"""The state of a gate and its use cases, once for threads and event loops.

A request gets a slot, which it has until it is released, or units of a budget, which is a rate. It
gets them at once if no request of its class waits and the class is below its ceiling. Else

- critical and default requests wait, in fair order within their class, critical ones first;
- sheddable ones never wait. They are denied, and take neither a place nor time from the others.

All that makes room hands it out at once: while there is room for a class, none of it waits. A rate
makes room as time passes, so of the callers that wait one, the *leader*, sleeps until then and
hands out what there is. The next one by then has it. A leader that leaves has another one woken.

A caller that waits is a generator of effects (`GateState.enter`). However it ends, it leaves the
queue: those behind it move up, and what it was given already goes to the next.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, get_args

from headgate.overload.fair_queue import FairQueue
from headgate.overload.gate_options import unknown_priority
from headgate.overload.place import Place, Reason
from headgate.overload.rate_budget import PacedBudget
from headgate.policy.model import PRIORITIES, ceilings
from headgate.runtime.drivers import Background
from headgate.runtime.effects import CLOSE_TIMEOUT, Signal, Sleep, Wait
from headgate.runtime.waiting_lines import nap
from headgate.stores.base import checked_cost, checked_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.clock import Clock
    from headgate.engine.plan import Priority
    from headgate.observability.metrics import Counter
    from headgate.overload.fair_queue import Item
    from headgate.overload.gate_options import GateSettings
    from headgate.overload.place import Request
    from headgate.overload.rate_budget import FleetRate
    from headgate.runtime.effects import Effect, Effects

_PATIENT: Final[tuple[Priority, ...]] = ("critical", "default")
"""The classes that wait, in the order in which they go."""

_MEMORY: Final = 16
"""About how many requests the mean time in a slot is averaged over."""


OUTCOMES: Final = ("passed", "waited", "cancelled", *get_args(Reason))
"""The outcomes of requests to a gate, which are counted."""


@dataclass(slots=True, eq=False)
class _Waiter:
    """A request that waits, and the place that it gets in the end, or a denial."""

    item: Item
    request: Request
    came_ns: int
    deadline_ns: int | None
    place: Place | None = None
    signal: Signal = field(default_factory=Signal)
    """Set when it has its place, and when it is to look for more."""


class GateState:
    """The requests that are in and those that wait. Safe to share among threads."""

    def __init__(
        self,
        settings: GateSettings,
        counters: Mapping[str, Counter],
        now: Clock,
        clock: Clock | None,
    ) -> None:
        self.in_flight = 0
        self.depth = 0
        """Requests that wait."""
        self.abandoned: deque[Place] = deque()
        """Places whose holders are gone, to be released by the next request."""
        # A finalizer may throw a caller away that waits, while its thread has the lock.
        self._lock = threading.RLock()
        self._now = now
        self._clock = clock
        self._queues = {priority: FairQueue() for priority in _PATIENT}
        self._held_ns: int | None = None  # the mean time in a slot of late
        self._is_closed = False
        self._latest_ns: int | None = None  # when the budget was last taken from
        self._leader: _Waiter | None = None
        self._fetching: tuple[Signal, Signal] | None = None  # to stop fetching; set at its end
        self._counters = counters
        self._passed = counters["passed"]
        self._apply(settings)

    def depth_of(self, tenant: str) -> int:
        """Return how many requests of *tenant* wait."""
        return sum(queue.depth_of(tenant) for queue in self._queues.values())

    def try_enter(self, tenant: str, cost: int, priority: Priority) -> Place | None:
        """Return a place, if there is one now and no request waits for it; else None."""
        if self.abandoned:
            self._release_abandoned()
        if type(tenant) is not str or not tenant:
            checked_key(tenant)
        with self._lock:
            now = self._now()
            if type(cost) is not int or cost < 1:
                return self._checked_nothing(tenant, cost, now)
            in_flight = self.in_flight + 1
            try:
                if in_flight > self._ceilings[priority]:
                    return None
            except KeyError:
                raise unknown_priority(priority) from None
            taken, budget = 0, self._budget
            if budget is not None:
                if self.depth or budget.take(cost, now, has_waited=False):
                    return None
                taken, self._latest_ns = cost, now
            self.in_flight = in_flight
            self._passed.add()
            scaled = self._scaled(priority) if self._is_scaled else in_flight
            return Place(self, tenant, now, in_flight, scaled, 0, taken)

    def enter(self, request: Request) -> Effects[Place]:
        """Wait for a place that could not be had at once."""
        waiter: _Waiter | Place | None = None
        try:
            with self._lock:
                waiter = self._line_up(request)
            if isinstance(waiter, Place):
                return waiter
            while (effect := self._look(waiter)) is not None:
                yield effect
            return self._accept(waiter)
        except BaseException:  # cancelled, interrupted or thrown away, at any step
            if isinstance(waiter, _Waiter):
                self._abandon(waiter)
            raise

    def release(self, place: Place, *, succeeded: bool) -> None:
        """Release *place*."""
        with self._lock:
            now = self._now()
            self.in_flight -= 1
            if self._budget is not None:
                return
            latency_ns = max(now - place.began_ns, 0)
            held_ns = self._held_ns
            self._held_ns = (
                latency_ns if held_ns is None else held_ns + (latency_ns - held_ns) // _MEMORY
            )
            steering = self._steering
            try:
                if steering is not None:
                    took_ns = latency_ns if place.is_timed else 0
                    steering.observe(
                        in_flight=place.scaled, latency_ns=took_ns, succeeded=succeeded
                    )
                    if steering.limit != self.limit:
                        self._read_slots()
            finally:  # even if the steering fails: a free slot is not waited for
                if self.depth:
                    self._hand_out(now)

    def take_back(self, place: Place) -> None:
        """Release a *place* that was not used."""
        with self._lock:
            self._take_back(place)
            self._wake_leader(self._hand_out(self._now()))
            self._stop_fetching_if_idle()

    def close(self) -> None:
        """Deny all requests that wait, and all that come."""
        with self._lock:
            now = self._now()
            self._is_closed = True
            self._ceilings = dict.fromkeys(PRIORITIES, 0)
            for queue in self._queues.values():
                while (item := queue.pop()) is not None:
                    self.depth -= 1
                    waiter: _Waiter = item.load
                    denial = self._denial(waiter.request, "closed", waiter.came_ns, now, None)
                    self._settle(waiter, denial)
            self._stop_fetching_if_idle()

    def aclose(self) -> Effects[None]:
        """Deny as `close` does, and close a budget that is fetched."""
        self.close()
        if self._fetching is not None:
            yield Wait(self._fetching[1], CLOSE_TIMEOUT)
        if self._settings.fetched is not None:
            yield from self._settings.fetched.close()

    def configure(self, settings: GateSettings) -> None:
        """Go on with other *settings*. No request that waits has to leave."""
        with self._lock:
            before = self._settings.weights
            if isinstance(self._budget, PacedBudget) and isinstance(settings.budget, PacedBudget):
                settings.budget.follow(self._budget)
            self._apply(settings)
            for tenant in before.keys() | settings.weights.keys():
                weight = settings.weights.get(tenant, 1)
                if weight != before.get(tenant, 1):
                    for queue in self._queues.values():
                        queue.reweigh(tenant, weight)
            self._wake_leader(self._hand_out(self._now()))

    def standing(self, request: Request) -> tuple[int, int | None, int, int | None]:
        """Return the `depth`, the expected wait in nanoseconds, `in_flight` and `limit`.

        The wait is that of *request*; None if nothing is known.
        """
        with self._lock:
            wait_ns: int | None = 0
            if self._budget is not None or self.in_flight >= self._ceilings[request.priority]:
                wait_ns = self._expected_ns(request, self._now())
            return self.depth, wait_ns, self.in_flight, self.limit

    def drain_ns(self) -> int:
        """Estimate how long it takes until all that wait have a place; 0 if unknown.

        It reads numbers only, and takes no lock.
        """
        if not self.depth:
            return 0
        if self._budget is not None:
            cost = sum(queue.cost for queue in self._queues.values())
            return self._budget.delay(max(cost - 1, 0), self._now())
        return self.depth * (self._held_ns or 0) // max(self._ceilings["default"], 1)

    # ---- waiting --------------------------------------------------------------------------

    def _line_up(self, request: Request) -> _Waiter | Place:
        """Queue *request*, or return a denial."""
        settings, now = self._settings, self._now()
        patience_ns, longest_ns = request.patience_ns, settings.max_wait_ns
        if longest_ns is not None and (patience_ns is None or longest_ns < patience_ns):
            patience_ns = longest_ns
        if self._is_closed:
            return self._denial(request, "closed", now, now, None)
        if request.priority == "sheddable" and not self.depth and settings.fetched is not None:
            # There may be room at once, which only the store knows.
            request = request._replace(priority="default")
        reason, expected_ns = self._objection(request), None
        if reason is not None or patience_ns is not None:
            expected_ns = self._expected_ns(request, now)
            if reason is None and (not patience_ns or (expected_ns or 0) > patience_ns):
                reason = "too_long"
        if reason is not None:
            return self._denial(request, reason, now, now, expected_ns)
        if self.depth >= settings.waiting and (other := self._dispensable(request)):
            self._send_away(other, "queue_full", now)
        queue = self._queues[request.priority]
        item = queue.push(request.tenant, request.cost, self._weight(request))
        self.depth += 1
        deadline_ns = None if patience_ns is None else now + patience_ns
        item.load = waiter = _Waiter(item, request, now, deadline_ns)
        return waiter

    def _look(self, waiter: _Waiter) -> Effect | None:
        """Hand out what there is; return what *waiter* does until it looks again.

        None: it has its place.
        """
        if self.abandoned:
            self._release_abandoned()
        with self._lock:
            now = self._now()
            waiter.signal = Signal()
            wait_ns = self._hand_out(now)
            if (
                waiter.place is None
                and waiter.deadline_ns is not None
                and waiter.deadline_ns <= now
            ):
                self._send_away(waiter, "timeout", now)
            if waiter.place is not None:
                return None
            fetched = self._settings.fetched
            if fetched is None:
                return self._pause(waiter, wait_ns, now)
            if wait_ns is None or self._fetching is not None:
                return self._pause(waiter, None, now)
            self._fetching = Signal(), Signal()
            return Background(self._fetch(fetched), "headgate-fleet-rate")

    def _pause(self, waiter: _Waiter, wait_ns: int | None, now: int) -> Effect:
        """Wait for the signal, and if *waiter* leads, or can, for at most *wait_ns*."""
        if self._leader is None and wait_ns is not None:
            self._leader = waiter
        if self._leader is not waiter:
            wait_ns = None
        if waiter.deadline_ns is not None:
            left_ns = waiter.deadline_ns - now
            wait_ns = left_ns if wait_ns is None else min(wait_ns, left_ns)
        if wait_ns is None:
            return Wait(waiter.signal)
        if self._leader is waiter and hasattr(self._clock, "sleep"):
            return Sleep(nap(wait_ns), self._clock)
        return Wait(waiter.signal, nap(wait_ns))

    def _accept(self, waiter: _Waiter) -> Place:
        """Return the place of *waiter*, or its denial."""
        place = waiter.place
        assert place is not None  # noqa: S101 (mypy: it has looked)
        with self._lock:
            self._step_down(waiter)
            if place:
                self._counters["waited"].add()
        return place

    def _abandon(self, waiter: _Waiter) -> None:
        """Remove *waiter*. If it got a place meanwhile, the next one gets that."""
        with self._lock:
            if waiter.place is None:
                self._cancel(waiter)
            elif waiter.place:
                self._take_back(waiter.place)
            if waiter.place is None or waiter.place:
                self._counters["cancelled"].add()
            self._step_down(waiter, has_room=True)

    def _step_down(self, waiter: _Waiter, *, has_room: bool = False) -> None:
        """Have another request look for more room, if *waiter* did or was to."""
        is_leader = self._leader is None or self._leader is waiter
        if is_leader:
            self._leader = None
        if is_leader or has_room:
            self._wake_leader(self._hand_out(self._now()))
        self._stop_fetching_if_idle()

    def _wake_leader(self, wait_ns: int | None) -> None:
        """Have a waiting request look, if there is more room in *wait_ns*."""
        if wait_ns is None:
            return
        waiter = self._leader
        for queue in self._queues.values():
            if waiter is None and (item := queue.peek()) is not None:
                waiter = item.load
        if waiter is not None:
            waiter.signal.set()

    def _fetch(self, budget: FleetRate) -> Effects[None]:
        """Fetch units as long as any request waits.

        If that fails, the next request that comes has it tried again.
        """
        ended = Signal()
        try:
            while True:
                with self._lock:
                    if self._hand_out(self._now()) is None:
                        return
                    stop = Signal()
                    self._fetching = stop, ended
                yield from budget.fetch(stop, self._now)
        finally:
            with self._lock:
                self._fetching = None
                budget.drop()
            ended.set()

    def _stop_fetching_if_idle(self) -> None:
        """Save nothing up: what was fetched is dropped when no request waits."""
        fetched = self._settings.fetched
        if self.depth or fetched is None:
            return
        if self._fetching is not None:
            self._fetching[0].set()
        fetched.drop()

    # ---- room -----------------------------------------------------------------------------

    def _apply(self, settings: GateSettings) -> None:
        self._settings = settings
        self._budget = settings.budget
        self._latest_ns = None
        self._steering = None if isinstance(settings.slots, int) else settings.slots
        self._is_scaled = self._steering is not None and bool(settings.reserve)
        self._read_slots()

    def _read_slots(self) -> None:
        slots = self._settings.slots
        if self._steering is not None:
            slots = max(int(self._steering.limit), 1)
        self.limit = slots if isinstance(slots, int) else None
        if self._is_closed:
            return
        if self.limit is None:
            self._ceilings = dict.fromkeys(PRIORITIES, 1 << 62)
        else:
            self._ceilings = ceilings(self.limit, self._settings.reserve)

    def _hand_out(self, now: int) -> int | None:
        """Give places to those who wait, as far as there is room.

        Return the nanoseconds until there may be more without a release; None if never.
        """
        budget = self._budget
        for priority, queue in self._queues.items():
            if budget is None:
                ceiling = self._ceilings[priority]
                while self.in_flight < ceiling and (item := queue.pop()) is not None:
                    self._allow(item, now)
            else:
                while (item := queue.peek()) is not None:
                    wait_ns = budget.take(item.cost, now, has_waited=True)
                    if wait_ns:
                        return wait_ns
                    queue.pop()
                    self._latest_ns = now
                    self._allow(item, now, taken=item.cost)
        return None

    def _allow(self, item: Item, now: int, *, taken: int = 0) -> None:
        self.depth -= 1
        self.in_flight += 1
        waiter: _Waiter = item.load
        waited_ns = max(now - waiter.came_ns, 0)
        scaled = self._scaled(waiter.request.priority) if self._is_scaled else self.in_flight
        self._settle(
            waiter, Place(self, item.tenant, now, self.in_flight, scaled, waited_ns, taken)
        )

    def _scaled(self, priority: Priority) -> int:
        """Return `in_flight` in proportion: all slots are in use for a class if all are that it
        may use."""
        ceiling, limit = self._ceilings[priority], self.limit
        if limit is None or ceiling >= limit:
            return self.in_flight
        return self.in_flight * limit // max(ceiling, 1)

    def _settle(self, waiter: _Waiter, place: Place) -> None:
        waiter.place = place
        waiter.signal.set()

    def _cancel(self, waiter: _Waiter) -> None:
        if self._queues[waiter.request.priority].cancel(waiter.item):
            self.depth -= 1

    def _take_back(self, place: Place) -> None:
        """Return what *place* took; units only if no others were taken since, which would be
        followed too closely."""
        self.in_flight -= 1
        if self._budget is not None and place.began_ns == self._latest_ns:
            self._budget.give_back(place.taken)

    def _release_abandoned(self) -> None:
        """Release the places whose holders are gone. Their durations say nothing."""
        with suppress(IndexError):  # another thread may have been faster
            while True:
                place = self.abandoned.popleft()
                place.is_timed = False
                place.release()

    # ---- denials --------------------------------------------------------------------------

    def _objection(self, request: Request) -> Reason | None:
        """Return the reason why *request* may not wait, or None."""
        if request.priority not in self._queues:
            return "shed"
        settings = self._settings
        is_full = self.depth_of(request.tenant) >= settings.queue or (
            self.depth >= settings.waiting and self._dispensable(request) is None
        )
        return "queue_full" if is_full else None

    def _dispensable(self, request: Request) -> _Waiter | None:
        """Return the waiter that *request* may replace when no more may wait.

        One of a lower class; else the last in the longest line, if that of its tenant will not be
        as long. So a few tenants with many waiting cannot shut the others out.
        """
        for name in reversed(_PATIENT):
            is_own = name == request.priority
            item, length = self._queues[name].last_of_longest()
            if item is not None and length >= (self.depth_of(request.tenant) + 2 if is_own else 1):
                waiter: _Waiter = item.load
                return waiter
            if is_own:
                break
        return None

    def _send_away(self, waiter: _Waiter, reason: Reason, now: int) -> None:
        """Deny a request that waits."""
        self._cancel(waiter)
        expected_ns = self._expected_ns(waiter.request, now)
        denial = self._denial(waiter.request, reason, waiter.came_ns, now, expected_ns)
        self._settle(waiter, denial)

    def _denial(
        self, request: Request, reason: Reason, came_ns: int, now: int, expected_ns: int | None
    ) -> Place:
        self._counters[reason].add()
        count, waited_ns = self.in_flight, max(now - came_ns, 0)
        return Place(None, request.tenant, now, count, count, waited_ns, 0, reason, expected_ns)

    def _weight(self, request: Request) -> int:
        weights = self._settings.weights
        return weights.get(request.tenant, 1) if request.weight is None else request.weight

    def _expected_ns(self, request: Request, now: int) -> int | None:
        """Estimate how long *request* would have to wait behind those that wait now."""
        ahead = count = 0
        own = request.priority if request.priority in self._queues else "default"
        for name, queue in self._queues.items():
            cost = queue.cost
            if name == own:
                cost = queue.ahead_of(request.tenant, request.cost, self._weight(request))
            ahead += cost
            count += cost * len(queue) // queue.cost if queue.cost else 0
            if name == own:
                break
        if self._budget is not None:
            return self._budget.delay(ahead, now)
        if self._held_ns is None:
            return None
        # Slots come free one after another, on average.
        return (count + 1) * self._held_ns // max(self._ceilings[request.priority], 1)

    def _checked_nothing(self, tenant: str, cost: int, now: int) -> Place:
        """Allow a cost of 0, which changes nothing; any other here is wrong."""
        if checked_cost(cost):
            raise TypeError(f"cost is {cost!r}; expected an int")
        return Place(None, tenant, now, self.in_flight, self.in_flight)
