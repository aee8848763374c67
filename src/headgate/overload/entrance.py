"""Who is in and who waits, without I/O: the core of both gates.

It reads no clock (*now* is said, in nanoseconds) and takes no lock: a gate calls it, one at a time,
and gives each `Place` a way to be woken.

A turn is given out of slots, of which each holder has one until it leaves, or out of a budget. It
is given at once if nobody of its class waits and there is room below the ceiling of the class. Else

- critical and default requests wait, in fair order among their class, critical ones first;
- sheddable ones never wait. They are refused, so that they take no room in a queue, and no time,
  from what matters more.

Whenever there is room for a class, none of it waits: all that makes room gives it out at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.overload.fair_queue import FairQueue
from headgate.overload.gate_options import in_proportion, no_class
from headgate.overload.turns import PacedBudget, Place, Turn
from headgate.policy.model import PRIORITIES, ceilings
from headgate.stores.base import checked_cost, checked_key

if TYPE_CHECKING:
    from headgate.engine.rule import Priority
    from headgate.overload.fair_queue import Item
    from headgate.overload.gate_options import Tallies, Terms
    from headgate.overload.turns import Budget, Refusal, TurnGate

_PATIENT: Final[tuple[Priority, ...]] = ("critical", "default")
"""The classes that wait, those that go first first."""

_MEMORY: Final = 16
"""About how many turns the mean time in a slot is taken over."""


class Entrance:
    """The state of a gate. Whoever calls it does so alone."""

    __slots__ = (
        "__weakref__",
        "_budget",
        "_ceilings",
        "_held_ns",
        "_is_closed",
        "_keeps",
        "_latest_ns",
        "_lines",
        "_steering",
        "_tallies",
        "depth",
        "gate",
        "in_flight",
        "limit",
        "terms",
    )

    def __init__(self, gate: TurnGate, terms: Terms, tallies: Tallies) -> None:
        self.gate = gate
        self.in_flight = 0
        self.depth = 0
        """How many wait."""
        self._lines = {priority: FairQueue() for priority in _PATIENT}
        self._held_ns: int | None = None  # for how long a slot is held: the mean of late
        self._is_closed = False
        self._latest_ns: int | None = None  # when a turn was last given out of the budget
        self._tallies = tallies
        self._take_on(terms)

    def depth_of(self, tenant: str) -> int:
        """How many of *tenant* wait."""
        return sum(line.depth_of(tenant) for line in self._lines.values())

    def first(self) -> Place | None:
        """Who is next of those who wait."""
        for line in self._lines.values():
            item = line.peek()
            if item is not None:
                place: Place = item.load
                return place
        return None

    def waiting(self) -> int:
        return self.depth

    def inside(self) -> int:
        return self.in_flight

    def slots(self) -> int:
        return self.limit or 0

    def pass_at_once(self, tenant: str, cost: int, priority: Priority, now: int) -> Turn | None:
        """A turn, if there is one now and nobody waits for it; None if not."""
        if type(tenant) is not str or not tenant:
            checked_key(tenant)
        if type(cost) is not int or cost < 1:
            return self._checked_nothing(tenant, cost, now)
        in_flight = self.in_flight + 1
        try:
            if in_flight > self._ceilings[priority]:
                return None
        except KeyError:
            raise no_class(priority) from None
        budget = self._budget
        if budget is not None:
            if self.depth or budget.take(cost, now, has_waited=False):
                return None
            turn = Turn(self, tenant, now, in_flight, taken=cost)
            self._latest_ns = now
        else:
            turn = Turn(self, tenant, now, in_flight)
            if self._keeps:
                turn.felt = in_proportion(in_flight, self._ceilings[priority], self.limit)
        self.in_flight = in_flight
        self._tallies.passed.count += 1
        return turn

    def line_up(
        self,
        tenant: str,
        cost: int,
        weight: int | None,
        priority: Priority,
        patience_ns: int | None,
        now: int,
    ) -> Place | Turn:
        """A place for one that could not pass at once; or its refusal."""
        terms = self.terms
        weight = terms.weights.get(tenant, 1) if weight is None else weight
        longest = terms.max_wait_ns
        if longest is not None and (patience_ns is None or longest < patience_ns):
            patience_ns = longest
        if self._is_closed:
            return self._refusal(tenant, "closed", now, now, None)
        if priority == "sheddable" and not self.depth and terms.fetched is not None:
            priority = "default"  # whether there is a turn at once, only the one who fetches knows
        reason = self._objection(tenant, priority)
        expected_ns = None
        if reason is not None or patience_ns is not None:
            expected_ns = self._expected_ns(tenant, cost, weight, priority, now)
            if reason is None and (not patience_ns or (expected_ns or 0) > patience_ns):
                reason = "too_long"
        if reason is not None:
            return self._refusal(tenant, reason, now, now, expected_ns)
        if self.depth >= terms.waiting and (other := self._dispensable(tenant, priority)):
            self._send_away(other, "queue_full", now)
        item = self._lines[priority].push(tenant, cost, weight)
        self.depth += 1
        deadline_ns = None if patience_ns is None else now + patience_ns
        item.load = place = Place(item, weight, priority, now, deadline_ns)
        return place

    def give_out(self, now: int) -> int | None:
        """Give turns to those who wait, as far as there is room.

        In how many nanoseconds there may be more without anybody's leaving; None if never.
        """
        if self._budget is not None:
            return self._give_budget(self._budget, now)
        self._give_slots(now)
        return None

    def accept(self, turn: Turn) -> Turn:
        """What one that waited has got reached it; now it is its own to release."""
        if turn:
            self._tallies.waited.count += 1
        return turn

    def leave(self, turn: Turn, *, succeeded: bool, now: int) -> None:
        """The holder of *turn* is done."""
        self.in_flight -= 1
        if self._budget is not None:
            return
        latency_ns = max(now - turn.began_ns, 0)
        held_ns = self._held_ns
        self._held_ns = (
            latency_ns if held_ns is None else held_ns + (latency_ns - held_ns) // _MEMORY
        )
        steering = self._steering
        try:
            if steering is not None:
                took_ns = latency_ns if turn.is_timed else 0
                steering.observe(in_flight=turn.felt, latency_ns=took_ns, succeeded=succeeded)
                if steering.limit != self.limit:
                    self._open_up()
        finally:  # whatever the steering does: nobody shall wait for a slot that is free
            if self.depth:
                self._give_slots(now)

    def take_back(self, turn: Turn, now: int) -> int | None:
        """The holder of *turn* never made use of it; as `give_out`."""
        self.in_flight -= 1
        self._refund(turn)
        return self.give_out(now)

    def withdraw(self, place: Place, now: int) -> int | None:
        """The one in *place* waits no longer: it was cancelled; as `give_out`.

        A turn that it was given in the meantime goes to the next one.
        """
        if place.turn is None:
            self._cancel(place)
            self._tallies.cancelled.count += 1
        elif place.turn:
            self._tallies.cancelled.count += 1
            return self.take_back(place.turn, now)
        return self.give_out(now)

    def expire(self, place: Place, now: int) -> None:
        """The time of the one in *place* is up."""
        if place.turn is None:
            self._send_away(place, "timeout", now)

    def close(self, now: int) -> None:
        """Refuse all who wait, and all who come."""
        self._is_closed = True
        self._ceilings = dict.fromkeys(PRIORITIES, 0)
        for line in self._lines.values():
            while (item := line.pop()) is not None:
                self.depth -= 1
                place: Place = item.load
                refusal = self._refusal(item.tenant, "closed", place.asked_ns, now, None)
                self._settle(place, refusal)

    def adopt(self, terms: Terms, now: int) -> int | None:
        """Go on under other *terms*; as `give_out`. Nobody who waits has to leave."""
        before = self.terms.weights
        if isinstance(self._budget, PacedBudget) and isinstance(terms.budget, PacedBudget):
            terms.budget.follow(self._budget)
        self._take_on(terms)
        for tenant in before.keys() | terms.weights.keys():
            weight = terms.weights.get(tenant, 1)
            if weight != before.get(tenant, 1):
                for line in self._lines.values():
                    line.reweigh(tenant, weight)
        return self.give_out(now)

    def expected_ns(
        self,
        now: int,
        tenant: str = "",
        weight: int | None = None,
        priority: Priority = "default",
    ) -> int | None:
        """How long one more of *tenant*, or of somebody with nothing waiting, would have to wait.

        None if there is nothing to go by.
        """
        if self._budget is None and self.in_flight < self._ceilings[priority]:
            return 0
        weight = self.terms.weights.get(tenant, 1) if weight is None else weight
        return self._expected_ns(tenant, 1, weight, priority, now)

    def drain_ns(self, now: int) -> int:
        """About how long it takes until all who wait now have had their turn; 0 if nobody knows.

        It reads numbers only, so that it may be asked from anywhere.
        """
        if not self.depth:
            return 0
        if self._budget is not None:
            cost = sum(line.cost for line in self._lines.values())
            return self._budget.delay(max(cost - 1, 0), now)
        return self.depth * (self._held_ns or 0) // max(self._ceilings["default"], 1)

    def _objection(self, tenant: str, priority: Priority) -> Refusal | None:
        """Why one of *tenant* may not wait, if so."""
        if priority not in self._lines:
            return "shed"
        if self.depth_of(tenant) >= self.terms.queue:
            return "queue_full"
        if self.depth >= self.terms.waiting and self._dispensable(tenant, priority) is None:
            return "queue_full"
        return None

    def _dispensable(self, tenant: str, priority: Priority) -> Place | None:
        """Who has to go if another of *tenant* is to wait where no more may.

        One that matters less; else the last in the longest line, if that of *tenant* will not be
        as long. So a few who have many waiting cannot shut the others out.
        """
        for name in reversed(_PATIENT):
            item, length = self._lines[name].last_of_longest()
            least = self.depth_of(tenant) + 2 if name == priority else 1
            if item is not None and length >= least:
                place: Place = item.load
                return place
            if name == priority:
                break
        return None

    def _send_away(self, place: Place, reason: Refusal, now: int) -> None:
        """The one in *place* has waited in vain."""
        item = place.item
        self._cancel(place)
        expected = self._expected_ns(item.tenant, item.cost, place.weight, place.priority, now)
        self._settle(place, self._refusal(item.tenant, reason, place.asked_ns, now, expected))

    def _take_on(self, terms: Terms) -> None:
        self.terms = terms
        self._budget = terms.budget
        self._latest_ns = None
        self._steering = None if isinstance(terms.slots, int) else terms.slots
        self._keeps = self._steering is not None and bool(terms.reserve)
        self._open_up()

    def _refund(self, turn: Turn) -> None:
        """Give back what *turn* cost, unless others have had theirs since: they would be followed
        too closely."""
        if self._budget is not None and turn.began_ns == self._latest_ns:
            self._budget.give_back(turn.taken)

    def _open_up(self) -> None:
        """Read how many slots there are."""
        slots = self.terms.slots
        if self._steering is not None:
            slots = max(int(self._steering.limit), 1)
        self.limit = slots if isinstance(slots, int) else None
        if self._is_closed:
            return
        if self.limit is None:
            self._ceilings = dict.fromkeys(PRIORITIES, 1 << 62)
        else:
            self._ceilings = ceilings(self.limit, self.terms.reserve)

    def _give_slots(self, now: int) -> None:
        for priority, line in self._lines.items():
            ceiling = self._ceilings[priority]
            while self.in_flight < ceiling and (item := line.pop()) is not None:
                self._admit(item, now)

    def _give_budget(self, budget: Budget, now: int) -> int | None:
        for line in self._lines.values():
            while (item := line.peek()) is not None:
                wait_ns = budget.take(item.cost, now, has_waited=True)
                if wait_ns:
                    return wait_ns
                line.pop()
                self._latest_ns = now
                self._admit(item, now, taken=item.cost)
        return None

    def _admit(self, item: Item, now: int, *, taken: int = 0) -> None:
        self.depth -= 1
        self.in_flight += 1
        place: Place = item.load
        waited_ns = max(now - place.asked_ns, 0)
        turn = Turn(self, item.tenant, now, self.in_flight, waited_ns, taken=taken)
        if self._keeps:
            turn.felt = in_proportion(self.in_flight, self._ceilings[place.priority], self.limit)
        self._settle(place, turn)

    def _cancel(self, place: Place) -> None:
        if self._lines[place.priority].cancel(place.item):
            self.depth -= 1

    def _settle(self, place: Place, turn: Turn) -> None:
        place.turn = turn
        if place.wake is not None:
            place.wake(turn)

    def _refusal(
        self, tenant: str, reason: Refusal, asked: int, now: int, expected_ns: int | None
    ) -> Turn:
        self._tallies.refused[reason].count += 1
        return Turn(None, tenant, now, self.in_flight, max(now - asked, 0), reason, expected_ns)

    def _expected_ns(
        self, tenant: str, cost: int, weight: int, priority: Priority, now: int
    ) -> int | None:
        """How long this one would have to wait, going by those who wait now."""
        ahead = count = 0
        for name, line in self._lines.items():
            is_own = name == priority or (name == "default" and priority not in self._lines)
            cost_ahead = line.ahead_of(tenant, cost, weight) if is_own else line.cost
            ahead += cost_ahead
            count += cost_ahead * len(line) // line.cost if line.cost else 0
            if is_own:
                break
        if self._budget is not None:
            return self._budget.delay(ahead, now)
        if self._held_ns is None:
            return None
        # Slots come free one after another, on average.
        return (count + 1) * self._held_ns // max(self._ceilings.get(priority, 1), 1)

    def _checked_nothing(self, tenant: str, cost: int, now: int) -> Turn:
        """A cost of 0 is always allowed and changes nothing; any other here is wrong."""
        if checked_cost(cost):
            raise TypeError(f"cost is {cost!r}; expected an int")
        return Turn(None, tenant, now, self.in_flight)
