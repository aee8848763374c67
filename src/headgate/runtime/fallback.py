"""Decide in this process while the store is gone, and report the usage afterwards.

While the store is gone, or has unreported usage, a generator of effects runs in the background
(`Fallback.recover`), in the event loop or a thread: it peeks at a store that is gone every one or
two seconds, so that an outage ends without requests too, and then reports the usage in batches.
A peek is a call like any other, which the circuit breaker may reject. Pauses differ from process to
process: a fleet must not overload the store that is just back.
"""

from __future__ import annotations

import threading
from random import Random
from time import monotonic_ns
from typing import TYPE_CHECKING, Final, Literal, Protocol
from weakref import WeakValueDictionary

from headgate.decision import PartialHit
from headgate.errors import StoreError
from headgate.fork import watch_forks
from headgate.limits import TokenBucket
from headgate.observability import METRICS
from headgate.runtime.background import BackgroundWork
from headgate.runtime.effects import CLOSE_TIMEOUT
from headgate.runtime.local_share import RuleChecks, decision_of, mode_of, unknown_usage
from headgate.runtime.outage import (
    DECIDED,
    DROPPED,
    Outage,
    log_beginning,
    log_end,
    log_escalation,
)
from headgate.runtime.reconciliation import (
    MAX_COUNTERS,
    UnreportedUsage,
    is_usage,
    report_batch,
)
from headgate.stores.memory import MemoryStore
from headgate.stores.operations import (
    CancelQueued,
    Charge,
    Check,
    Refund,
    Reset,
    Take,
    TakeUpTo,
)
from headgate.units import MINUTE, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headgate.clock import Clock
    from headgate.decision import Decision
    from headgate.runtime.effects import Effects
    from headgate.runtime.outage import ActivePolicy, Ended
    from headgate.stores.base import Store
    from headgate.stores.operations import Outcomes

MAX_KEYS: Final = 100_000
"""Keys with counters of their own; further keys share some, which makes them stricter."""


REMEMBER_NS: Final = MINUTE
"""The time after a failed call for which counters follow what the store says is used."""

PEEK_PAUSE: Final = (1.0, 2.0)
"""Seconds between two peeks at a store that is gone, at least and at most."""

FIRST_PAUSE: Final = (0.0, 1.0)
"""Seconds from the end of an outage to the first report."""

BATCH_PAUSE: Final = (0.025, 0.1)
"""Seconds between two reports."""

_PEEK: Final = Check("headgate!watch", "watch", TokenBucket(1, 1), 1)
"""The counter to peek at if none was used."""

Stage = Literal["peek", "wait", "report"]
"""The next round in the background: a peek; the first report, after a pause; a further report."""


class Breaker(Protocol):
    """The circuit breaker, which knows first that the store is back."""

    where: str

    @property
    def state(self) -> str: ...

    @property
    def is_open(self) -> bool: ...

    def on_change(self, callback: Callable[..., None], /) -> object: ...


class Fallback:
    """Decide for *store* while it is gone, and report to it afterwards. Safe for threads.

    All users of a store in this process share its fallback: see `Registry`. A limit that fails open
    allows while its share of this process has room and denies beyond; so does one that is `local`.
    Limits that are decided together are charged all or none: if one denies or is closed, none is.

    Counters are kept when the store is back, until they are fresh: however often it goes, the share
    holds. For `REMEMBER_NS` they also follow what the store says is used, so that a store that
    comes and goes grants no fresh share to a caller that has used up its limit.
    """

    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        self.local = MemoryStore(clock=clock, max_keys=MAX_KEYS)
        """The counters of this process, which decide."""
        self.is_out = False
        """True if the store is gone."""
        self.needs_success = False
        """True if successful calls are to be recorded here, by `succeed`."""
        self._store = store  # kept, so that it is the only one of its identity
        self._where = f"the store at {getattr(store, 'where', type(store).__name__)}"
        self._clock: Clock = self.local.clock
        self._random = Random()  # noqa: S311 (it spreads load, and keeps no secret)
        self._outage = Outage()
        self._unreported = UnreportedUsage()
        self._own = MemoryStore(clock=self._clock, max_keys=MAX_COUNTERS)
        """The part of the usage here that the store is to know, as far as it still counts."""
        self._recovery = BackgroundWork(
            self, "headgate-recovery", monotonic_ns, Fallback.next_round_ns, Fallback.recover
        )
        self._stage: Stage = "peek"
        self._last_check = _PEEK
        self._calls = self._calls_at_peek = 0
        self._is_closed = False
        self._lock = threading.Lock()
        self._breaker: Breaker | None = None
        watch_forks(self)

    def follow(self, breaker: Breaker) -> None:
        """Learn from *breaker* that the store is back."""
        self._breaker = breaker
        self._where = f"the store at {breaker.where}"
        breaker.on_change(lambda *_: self._breaker_changed())

    @property
    def out_for_ns(self) -> int | None:
        """The nanoseconds since the store went; None if it is there."""
        began_ns = self._outage.began_ns
        return None if began_ns is None else max(self._clock() - began_ns, 0)

    # ---- the state of the store ------------------------------------------------------------

    def fail(self, error: StoreError) -> None:
        """Record that a call failed."""
        now = self._clock()
        with self._lock:
            begins = self._outage.fail(now)
            self.is_out = self.needs_success = True
            self._calls += 1
            self._is_closed = self._is_closed or error.reason == "closed"
        if not self._is_closed:
            self._recovery.start()
        if begins:
            log_beginning(self._where, error)

    def succeed(self, decided: Iterable[tuple[RuleChecks, Decision]] = ()) -> None:
        """Record that a call succeeded, with what it *decided*; only while `needs_success`."""
        for rule, decision in decided:
            for use in unknown_usage(rule, decision, self.local.used_in):
                self.local.run(TakeUpTo((use,)))
            if len(self._unreported) and self._unreported.hurry(rule.checks):
                self._recovery.start(0)
        self._calls += 1  # unlocked: it only has to be another number
        self._is_closed = False
        breaker = self._breaker
        if breaker is None or breaker.state == "closed":
            self._end(is_certain=False)
        elif not breaker.is_open:  # or another part of the store answered
            with self._lock:
                self._outage.succeed()

    def _breaker_changed(self) -> None:
        if self._breaker is not None and self._breaker.state == "closed":
            self._end(is_certain=True)

    def _end(self, *, is_certain: bool) -> None:
        now = self._clock()
        with self._lock:
            ended: Ended | None = self._outage.end(now, is_certain=is_certain)
            self.is_out = self._outage.began_ns is not None
            is_recent = self._outage.has_failed_since(now - REMEMBER_NS)
            self.needs_success = self.is_out or is_recent or len(self._unreported) > 0
        if ended is not None:
            log_end(self._where, ended)
        if self.needs_recovery and not self.is_out:
            self._recovery.start(0 if ended is not None else None)

    # ---- recovery, in the background -------------------------------------------------------

    @property
    def needs_recovery(self) -> bool:
        """True if the store is gone, or there is usage to report."""
        return not self._is_closed and (self.is_out or len(self._unreported) > 0)

    def next_round_ns(self) -> int | None:
        """The time of the next round on the monotonic clock; None if there is nothing to do."""
        if not self.needs_recovery:
            self._stage = "peek"
            return None
        if self._unreported.has_urgent:
            return monotonic_ns()
        if self.is_out:
            self._stage, pause = "peek", PEEK_PAUSE
        elif self._stage == "peek":
            self._stage, pause = "wait", FIRST_PAUSE
        else:
            self._stage, pause = "report", BATCH_PAUSE
        return monotonic_ns() + int(self._random.uniform(*pause) * SECOND)

    def recover(self) -> Effects[None]:
        """One round: peek at a store that is gone, or report a batch to one that is back, or to one
        that is coming back if its counters are used there already."""
        if self._is_closed:
            return
        is_urgent = self._unreported.has_urgent
        if self.is_out and not is_urgent:
            if (peek := self.next_peek()) is not None:
                try:
                    yield from self._store.effects(peek)
                except StoreError:
                    return  # as the breaker knows
                self.succeed()
        elif is_urgent or self._stage != "peek":  # else the outage has just ended
            is_known = yield from report_batch(self._store, self._unreported, self._own.used_in)
            if not is_known:
                self._stage = "peek"

    def next_peek(self) -> Take | None:
        """A peek at the store, if no call was made since the last one: at a counter that was used
        lately, so that it reaches the part of the store that was gone."""
        calls, self._calls_at_peek = self._calls_at_peek, self._calls
        return Take((self._last_check,), consume=False) if calls == self._calls else None

    def closing(self) -> Effects[None]:
        """Report nothing more, and wait for the end of the round in flight."""
        self._is_closed = True
        yield from self._recovery.ending(CLOSE_TIMEOUT)

    def after_fork(self) -> None:
        """Begin as a new process: the parent reports its usage itself."""
        self._lock = threading.Lock()
        self._unreported.after_fork()
        self._outage = Outage()
        self.is_out = self.needs_success = False
        self._recovery.after_fork()

    # ---- decide ----------------------------------------------------------------------------

    def decide(
        self,
        rules: Sequence[RuleChecks],
        error: StoreError,
        *,
        consume: bool = True,
        lease: str | None = None,
        is_reported: bool = True,
        is_counted: bool = True,
    ) -> list[Decision]:
        """Decide each of *rules*, all or nothing, as the store has raised *error*.

        With *is_reported* the usage is reported to the store later, unless it may know already.
        With `is_counted=False` it is a part of a request, which `count_request` counts.
        """
        self.raise_if_required(rules, error)
        self.fail(error)
        if rules:
            self._last_check = rules[0].checks[0]
        policies = self._policies(rules)
        is_open = all(policy.mode != "fail_closed" for policy in policies)
        open_rules = [
            one for one, policy in zip(rules, policies, strict=True) if policy.mode != "fail_closed"
        ]
        take = Take(
            tuple([check for one in open_rules for check in one.shared]),
            consume=consume and is_open,
            lease=lease,
        )
        replies: Outcomes = self.local.run(take) if take.checks else ()
        outcomes = iter(replies)
        decisions = [
            decision_of(one, policy, tuple(next(outcomes) for _ in one.checks))
            if policy.mode != "fail_closed"
            else one.closed
            for one, policy in zip(rules, policies, strict=True)
        ]
        if is_counted:
            self._count(policies, decisions)
        if take.consume and is_reported and all(decisions):
            for one in open_rules:
                self.report_later(one, error)
        return decisions

    def raise_if_required(self, rules: Iterable[RuleChecks], error: StoreError) -> None:
        """Raise *error* if one of *rules* is to raise in place of a decision."""
        if any(one.on_failure.raises for one in rules):
            self.fail(error)
            raise error

    def take_up_to(self, rule: RuleChecks, error: StoreError) -> PartialHit:
        """Allow as much of the cost as fits here."""
        self.fail(error)
        (policy,) = self._policies([rule])
        if policy.mode == "fail_closed":
            part = PartialHit(0, rule.closed)
        else:
            granted, outcomes = self.local.run(TakeUpTo(rule.shared))
            rest = tuple([check.with_cost(check.cost - granted) for check in rule.checks])
            part = PartialHit(granted, decision_of(rule._replace(checks=rest), policy, outcomes))
            if granted:
                used = tuple([check.with_cost(granted) for check in rule.checks])
                self.report_later(rule._replace(checks=used), error)
        self._count([policy], [part.decision])
        return part

    def charge(self, rule: RuleChecks, error: StoreError, *, is_counted: bool = True) -> Decision:
        """Charge the amounts here; the decision of a peek after it."""
        decision = self._verb(rule, error, Charge, is_counted=is_counted)
        if decision.source != "fail_closed":
            self.report_later(rule, error)
        return decision

    def refund(self, rule: RuleChecks, error: StoreError, *, is_counted: bool = True) -> Decision:
        """Refund amounts that were charged here; the decision of a peek after it."""
        decision = self._verb(rule, error, Refund, is_counted=is_counted)
        if decision.source != "fail_closed":
            self._unreported.subtract(rule.checks)
        return decision

    def count_request(self, rules: Sequence[RuleChecks], decisions: Sequence[Decision]) -> None:
        """Count one request that was decided in parts: by *decisions*, one for each of *rules*."""
        self._count(self._policies(rules), decisions)

    # ---- change what was decided here ------------------------------------------------------

    def give_back(self, rule: RuleChecks) -> None:
        """Refund what was charged here."""
        if rule.checks:
            self.local.run(Refund(rule.shared))
            self._unreported.subtract(rule.checks)

    def correct(self, rule: RuleChecks, more: int) -> None:
        """Charge *more* than the estimate that was charged here; refund, if it is negative."""
        checks = tuple([check.with_cost(abs(more)) for check in rule.shared])
        if checks and more:
            self.local.run(Charge(checks) if more > 0 else Refund(checks))

    def report_later(self, rule: RuleChecks, error: StoreError) -> None:
        """Report the amounts, which were charged here, to the store later, unless *error*, which it
        has raised, means that it may know them."""
        if not error.is_undone:
            return
        self._own.run(Charge(tuple([check for check in rule.shared if is_usage(check)])))
        if dropped := self._unreported.add(rule.checks):
            DROPPED.add(dropped)
        self.needs_success = True
        if self.needs_recovery:
            self._recovery.start()

    def cancel_queued(self, rule: RuleChecks, times_ns: Sequence[int]) -> bool:
        """Give up places in queues that were granted here; False if one has come."""
        return self.local.run(CancelQueued(rule.shared, tuple(times_ns)))

    def reset(self, rule: RuleChecks) -> None:
        """Forget the counters of *rules*, and do not report them."""
        self.local.run(Reset(rule.shared))
        self._unreported.drop(rule.checks)

    # ---- helpers ---------------------------------------------------------------------------

    def _policies(self, rules: Sequence[RuleChecks]) -> list[ActivePolicy]:
        now = self._clock()
        policies = [self._outage.active_policy(one.on_failure, now) for one in rules]
        for policy in policies:
            if policy.is_escalated:
                with self._lock:
                    is_new = self._outage.escalate(policy.mode)
                    since_ns = now - (self._outage.began_ns or now)
                if is_new:
                    log_escalation(self._where, policy.mode, since_ns)
        return policies

    def _verb(
        self,
        rule: RuleChecks,
        error: StoreError,
        verb: Callable[[tuple[Check, ...]], Charge | Refund],
        *,
        is_counted: bool = True,
    ) -> Decision:
        self.fail(error)
        (policy,) = self._policies([rule])
        if policy.mode == "fail_closed":
            decision = rule.closed
        else:
            decision = decision_of(rule, policy, self.local.run(verb(rule.shared)))
        if is_counted:
            self._count([policy], [decision])
        return decision

    def _count(self, policies: Sequence[ActivePolicy], decisions: Sequence[Decision]) -> None:
        mode = mode_of(policies, decisions)
        if mode is not None:
            with self._lock:
                self._outage.count(mode)
            DECIDED[mode].add()


class Registry:
    """The fallback of each store, one for all its users in this process.

    A fallback keeps its store, so the identity of a store that has one is not used again.
    """

    def __init__(self) -> None:
        self._known: WeakValueDictionary[int, Fallback] = WeakValueDictionary()
        self.after_fork()
        watch_forks(self)
        METRICS.gauge("fail_mode_active", "Stores that are gone.", self.active)
        METRICS.gauge("fail_mode_seconds", "Seconds since the first of them went.", self.seconds)

    def of(
        self, store: Store, clock: Clock | None = None, breaker: Breaker | None = None
    ) -> Fallback:
        """The fallback of *store*; a new one uses *clock*, and learns from *breaker* that the store
        is back."""
        with self._lock:
            found = self._known.get(id(store))
            if found is None:
                found = self._known[id(store)] = Fallback(store, clock)
                if breaker is not None:
                    found.follow(breaker)
        return found

    def active(self) -> float:
        """The number of stores that are gone."""
        return float(len(self._outages()))

    def seconds(self) -> float:
        """The seconds since the first of them went."""
        return max(self._outages(), default=0) / SECOND

    def _outages(self) -> list[int]:
        found = [one.out_for_ns for one in list(self._known.values())]
        return [lasted_ns for lasted_ns in found if lasted_ns is not None]

    def after_fork(self) -> None:
        """Begin as a new process, with one thread."""
        self._lock = threading.Lock()


_registry: Final = Registry()
fallback_of: Final = _registry.of
