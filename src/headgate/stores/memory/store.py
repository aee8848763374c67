"""The store inside the process: exact, thread-safe, bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from headgate.algorithms import ConcurrencyAlgorithm, Outcome, Paced, algorithm_for
from headgate.algorithms.holds import Hold as HeldAmount
from headgate.algorithms.holds import outcome_beside, wait_beside
from headgate.clock import Clock, MonotonicClock
from headgate.decisions import Concluded, Decision
from headgate.stores.memory.counters import Counters, Entry, Group, Room
from headgate.stores.memory.turn import Turn
from headgate.stores.operations import (
    Charge,
    Check,
    Hold,
    Leave,
    Operation,
    Outcomes,
    Refund,
    Renew,
    Reset,
    Settle,
    Take,
    TakeEach,
)
from headgate.stores.port import AsyncStore, Hitter, Store, checked_cost, checked_key, conclude

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.limits import Limit

R = TypeVar("R")

DEFAULT_MAX_KEYS: Final = 1_000_000
TABLES_PER_GROUP: Final = 32
"""Beyond this, limits of a group that have no counters left are forgotten."""


class MemoryStore(Store):
    """Counters in this process, shared by all its threads and event loops.

    Idle counters vanish; at most *max_keys* are kept. When that many are in use, further keys
    share a fixed number of counters until some are idle: nobody's counter is ever dropped while
    it says anything.
    """

    def __init__(self, *, clock: Clock | None = None, max_keys: int = DEFAULT_MAX_KEYS) -> None:
        if type(max_keys) is not int or max_keys < 1:
            raise ValueError(f"max_keys is {max_keys!r}; expected an integer of at least 1")
        self._clock: Clock = MonotonicClock() if clock is None else clock
        self._origin = getattr(self._clock, "offset", 0)
        self._room = Room(max_keys)
        self._groups: dict[str, Group] = {}
        self._turn = Turn()
        self._verbs: dict[type, Callable[[Any, int], Any]] = {
            Take: self._take,
            TakeEach: self._take_each,
            Hold: self._hold,
            Settle: self._settle,
            Charge: self._charge,
            Refund: self._refund,
            Reset: self._reset,
            Renew: self._renew,
            Leave: self._leave,
        }

    def __len__(self) -> int:
        """How many counters there are, idle ones that no call has swept away yet included."""
        with self._turn:
            groups = list(self._groups.values())
            return sum(len(counters) for group in groups for counters in group.values())

    def run(self, operation: Operation[R]) -> R:
        verb = self._verbs[type(operation)]
        with self._turn:
            return cast("R", verb(operation, self._clock()))

    def hitter(self, group: str, limit: Limit) -> Hitter | None:
        with self._turn:
            counters = self._counters(group, limit, self._clock())
        slowly = self._plain_hitter(counters, group, limit)
        if not isinstance(counters.algorithm, Paced):
            return slowly
        return self._turn.paced_hitter(counters.algorithm, counters, self._clock, slowly)

    def _plain_hitter(self, counters: Counters, group: str, limit: Limit) -> Hitter:
        algorithm, turn, clock = counters.algorithm, self._turn, self._clock

        def hit(key: str, cost: int = 1) -> Decision:
            checked_key(key)
            if cost != 1:
                checked_cost(cost)
            with turn:
                now = clock()
                counters.sweep(now)
                state, holds = counters.load(key, now)
                if not holds:
                    state, outcome = algorithm.take(state, cost, now)
                    if outcome.allowed and cost:
                        counters.save(key, Entry(state, holds), now)
            if holds:
                check = Check(group, key, limit, cost)
                return conclude((check,), self.run(Take((check,))))
            return Concluded(
                key,
                limit,
                allowed=outcome.allowed,
                remaining=outcome.remaining,
                retry_after_ns=outcome.retry_after_ns,
                reset_after_ns=outcome.reset_after_ns,
            )

        return hit

    def _take_each(self, operation: TakeEach, now: int) -> tuple[Outcomes, ...]:
        return tuple(self._take(take, now) for take in operation.takes)

    def _take(self, operation: Take, now: int) -> Outcomes:
        checks = self._located(operation.checks, now)
        waits = _waits(checks, now)
        if operation.consume and not any(waits) and None not in waits:
            for counters, check in checks:
                self._charge_one(counters, check, operation.lease, now)
        return self._outcomes(checks, waits, now)

    def _hold(self, operation: Hold, now: int) -> Outcomes:
        checks = self._located(operation.checks, now)
        waits = _waits(checks, now)
        if not any(waits) and None not in waits:
            for counters, check in checks:
                state, holds = counters.load(check.key, now)
                held = HeldAmount(check.cost, now + operation.ttl_ns)
                counters.save(check.key, Entry(state, {**holds, operation.name: held}), now)
        return self._outcomes(checks, waits, now)

    def _settle(self, operation: Settle, now: int) -> bool:
        was_open = True
        for counters, check in self._located(operation.checks, now):
            state, holds = counters.load(check.key, now)
            mine = holds.pop(operation.name, None)
            was_open = was_open and mine is not None
            if check.cost and (mine is not None or operation.charge_lapsed):
                state = counters.algorithm.charge(state, check.cost, now)
            if mine is not None or check.cost:
                counters.save(check.key, Entry(state, holds), now)
        return was_open

    def _charge(self, operation: Charge, now: int) -> Outcomes:
        checks = self._located(operation.checks, now)
        for counters, check in checks:
            self._charge_one(counters, check, None, now)
        return self._outcomes_of_one(checks, now)

    def _refund(self, operation: Refund, now: int) -> Outcomes:
        checks = self._located(operation.checks, now)
        for counters, check in checks:
            state, holds = counters.load(check.key, now)
            if state is not None and check.cost:
                state = counters.algorithm.refund(state, check.cost, now)
                counters.save(check.key, Entry(state, holds), now)
        return self._outcomes_of_one(checks, now)

    def _reset(self, operation: Reset, now: int) -> None:
        for counters, check in self._located(operation.checks, now):
            counters.forget(check.key)

    def _renew(self, operation: Renew, now: int) -> bool:
        return self._for_slots(operation.checks, operation.lease, now, ConcurrencyAlgorithm.enter)

    def _leave(self, operation: Leave, now: int) -> bool:
        return self._for_slots(operation.checks, operation.lease, now, ConcurrencyAlgorithm.leave)

    def _for_slots(
        self, checks: tuple[Check, ...], lease: str, now: int, change: Callable[..., Any]
    ) -> bool:
        """Apply *change* to each slot that *lease* still has; False if any has been lost."""
        kept = True
        for counters, check in self._located(checks, now):
            algorithm = counters.algorithm
            if not isinstance(algorithm, ConcurrencyAlgorithm):
                continue
            leases, _ = counters.load(check.key, now)
            if algorithm.holds(leases, lease, now):
                counters.save(check.key, Entry(change(algorithm, leases, lease, now), {}), now)
            else:
                kept = False
        return kept

    def _charge_one(self, counters: Counters, check: Check, lease: str | None, now: int) -> None:
        if not check.cost:
            return
        state, holds = counters.load(check.key, now)
        algorithm = counters.algorithm
        if isinstance(algorithm, ConcurrencyAlgorithm) and lease is not None:
            state = algorithm.enter(state, lease, now)
        else:
            state = algorithm.charge(state, check.cost, now)
        counters.save(check.key, Entry(state, holds), now)

    def _outcomes(self, checks: Located, waits: list[int | None], now: int) -> Outcomes:
        return tuple(
            _outcome(counters, check.key, wait, now)
            for (counters, check), wait in zip(checks, waits, strict=True)
        )

    def _outcomes_of_one(self, checks: Located, now: int) -> Outcomes:
        ones = [(counters, Check(c.group, c.key, c.limit)) for counters, c in checks]
        return self._outcomes(ones, _waits(ones, now), now)

    def _located(self, checks: tuple[Check, ...], now: int) -> Located:
        located = [(self._counters(check.group, check.limit, now), check) for check in checks]
        for counters, _ in located:
            counters.sweep(now)
        return located

    def _counters(self, name: str, limit: Limit, now: int) -> Counters:
        group = self._groups.setdefault(name, {})
        counters = group.get(limit)
        if counters is None:
            if len(group) >= TABLES_PER_GROUP:
                for old in [old for old, table in group.items() if not len(table)]:
                    if not group[old].is_watched:
                        del group[old]
            algorithm = algorithm_for(limit, self._origin)
            counters = group[limit] = Counters(algorithm, group, self._room, now)
        return counters


Located = list[tuple[Counters, Check]]
"""Checks, each with the counters it concerns."""


def _waits(checks: Located, now: int) -> list[int | None]:
    """How long each check has to wait; later ones on the same counter beside the earlier."""
    waits: list[int | None] = []
    asked: dict[tuple[int, str], int] = {}
    for counters, check in checks:
        if not check.cost:
            waits.append(0)
            continue
        place = (id(counters), check.key)
        asked[place] = cost = asked.get(place, 0) + check.cost
        state, holds = counters.load(check.key, now)
        if holds:
            waits.append(wait_beside(counters.algorithm, state, holds, cost, now))
        else:
            waits.append(counters.algorithm.wait(state, cost, now))
    return waits


def _outcome(counters: Counters, key: str, wait: int | None, now: int) -> Outcome:
    state, holds = counters.load(key, now)
    if holds:
        return outcome_beside(counters.algorithm, state, holds, wait, now)
    return counters.algorithm.outcome(state, wait, now)


class AsyncMemoryStore(AsyncStore):
    """The same store for an event loop. Nothing it does takes long enough to be awaited."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store

    async def run(self, operation: Operation[R]) -> R:
        return self.store.run(operation)

    def hitter(self, group: str, limit: Limit) -> Hitter | None:
        return self.store.hitter(group, limit)
