"""The use cases on a store: decide, peek, reserve, settle, charge, refund, renew, release.

Each is written once, as a generator of effects: `drive` performs it in a thread, `adrive` in an
event loop. `decide_now` is the fast path: where one take is all there is to do, and the store has
its outcomes at once, no generator is needed.

A caller that is interrupted is charged nothing and holds nothing: the calls to the store that have
begun are completed, and what they granted is given back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from headgate.decision import PartialHit
from headgate.engine.hold_times import HoldTimes
from headgate.engine.holds import (
    Held,
    cancellation_of,
    charge_of,
    holdings,
    places_of,
    refund_of,
)
from headgate.engine.plan import PreparedTake, advance, replayed
from headgate.engine.recorder import (
    count_allowed,
    record,
    record_part,
    record_reserved,
    record_settled,
)
from headgate.engine.verdict import (
    Verdict,
    charged,
    is_here,
    verdict_at_once,
    verdict_of,
    verdict_without_store,
)
from headgate.errors import SettledError, StoreError
from headgate.observability import RECORDER
from headgate.observability.decision_recorder import read_timer
from headgate.responses.headers import rule_template
from headgate.runtime.drivers import Background
from headgate.runtime.effects import Close, Interrupted, Run, begin_undoing
from headgate.runtime.fallback import fallback_of
from headgate.runtime.local_share import RuleChecks
from headgate.stores.base import conclude
from headgate.stores.factory import health_of, set_accuracies, wrapped
from headgate.stores.operations import (
    Charge,
    Check,
    Refund,
    ReleaseSlot,
    RenewSlot,
    Reset,
    Take,
    TakeEach,
    TakeUpTo,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headgate.clock import Clock
    from headgate.decision import Decision
    from headgate.engine.holds import ExtraCosts, Holding
    from headgate.engine.plan import Plan, RulePlan, Stages
    from headgate.engine.verdict import Replies
    from headgate.runtime.effects import Effects
    from headgate.stores.base import Accuracies, Place, Prepared, Store
    from headgate.stores.operations import Operation, Outcomes

R = TypeVar("R")


class Calls:
    """The calls of one use case to *store*. An interruption does not end them: see `end`."""

    __slots__ = ("_interrupted", "_store")

    def __init__(self, store: Store) -> None:
        self._store = store
        self._interrupted: Interrupted | None = None

    @property
    def is_interrupted(self) -> bool:
        """True if the caller has gone."""
        return self._interrupted is not None

    def run(self, operation: Operation[R]) -> Effects[R]:
        """Carry out *operation*; if the caller is interrupted meanwhile, go on with the reply."""
        try:
            return (yield from self._store.effects(operation))
        except Interrupted as interrupted:
            return self.keep(interrupted)  # type: ignore[no-any-return] # an R

    def take_each(self, takes: Sequence[Take]) -> Effects[Replies]:
        """Make *takes*, each for itself; a single one as such, which a lease may serve."""
        if len(takes) == 1:
            return ((yield from self.run(takes[0])),)
        return (yield from self.run(TakeEach(tuple(takes))))

    def keep(self, interrupted: Interrupted) -> Any:
        """Keep an interruption for later, and return the reply that came with it, or raise its
        error. One without either is raised at once."""
        if not interrupted.is_known:
            raise interrupted
        self._interrupted = self._interrupted or interrupted
        if interrupted.error is not None:
            raise interrupted.error from None
        return interrupted.reply

    def try_all(self, operations: Iterable[Operation[Any]]) -> Effects[None]:
        """Carry out *operations*, each of which the store may miss."""
        for operation in operations:
            try:
                yield from self.run(operation)
            except StoreError:
                continue

    def end(self) -> None:
        """Raise the interruption, if there was one."""
        if self._interrupted is not None:
            raise self._interrupted


MAX_PREPARED: Final = 4096
"""Prepared takes that are kept: policies change, and limits may depend on the caller."""


ONE: Final = (1,)
"""The costs of most takes, which share them."""


class PreparedTakes:
    """The prepared takes of *store*."""

    __slots__ = ("_known", "_store")

    def __init__(self, store: Store) -> None:
        self._store = store
        # By the identity of the limits, which are kept too: to hash one takes longer than a hit.
        self._known: dict[tuple[tuple[str, int], ...], tuple[list[Place], Prepared]] = {}

    def of(self, checks: Sequence[Check]) -> Prepared:
        """The prepared take for checks like *checks*."""
        names = tuple([(check.group, id(check.limit)) for check in checks])
        found = self._known.get(names)
        if found is None:
            if len(self._known) >= MAX_PREPARED:
                self._known.clear()
            places = [(check.group, check.limit) for check in checks]
            found = self._known[names] = places, self._store.prepare(places)
        return found[1]


class Engine:
    """The use cases on *store*, a URL or a `Store`. Safe to share among threads and loops."""

    def __init__(self, store: str | Store, *, clock: Clock | None = None) -> None:
        self.store = wrapped(store, clock)
        self.fallback = fallback_of(self.store, self.store.clock, health_of(self.store))
        """The counters of this process, which decide while the store is gone."""
        self._takes = PreparedTakes(self.store)
        self._hold_times = HoldTimes()

    def set_accuracies(self, owner: object, accuracies: Accuracies) -> None:
        """Keep the counters of *owner*, a policy or a limiter, as exactly as *accuracies* say."""
        set_accuracies(self.store, owner, accuracies)
        self._takes = PreparedTakes(self.store)  # what they decide at once has changed

    def closing(self) -> Effects[None]:
        """Close the store, after callers that were interrupted have undone what they did."""
        yield from self.fallback.closing()
        yield Close(self.store)

    # ---- decide ------------------------------------------------------------------------------

    def decide_now(self, plan: Plan) -> Verdict | None:
        """Decide *plan* at once; None if it needs `decide`, and nothing was charged then."""
        if plan.engine is not self:
            self._prepare(plan)
        if plan.prepared and not plan.is_immediate:
            return None
        began_ns = read_timer()
        if plan.decide is not None:
            one = plan.rules[0]
            decision = plan.decide(one.key, one.cost)
            decided = Verdict(plan, (decision,), decision.allowed)
            if decision.allowed and RECORDER.until_sampled > 1 and not RECORDER.listeners:
                return count_allowed(decided)
            return record(decided, began_ns)
        verdict = self._take_now(plan) if plan.prepared else verdict_at_once(plan)
        return None if verdict is None else record(verdict, began_ns)

    def decide(self, plan: Plan, *, is_recorded: bool = True) -> Effects[Verdict]:
        """Decide a request: all of its rules or none are charged."""
        began_ns = read_timer()
        if plan.engine is not self:
            self._prepare(plan)
        if len(plan.prepared) != 1:
            verdict = yield from self._decide_unprepared(plan)
        else:  # here: a generator of its own would take longer
            handle, keys, costs = plan.prepared[0]
            try:
                outcomes = yield from handle.effects(keys, costs)
            except StoreError as error:
                verdict = self.decide_here(plan, error)
            except Interrupted as interrupted:
                yield from self.undo_take(plan, interrupted)
                raise
            else:
                verdict = verdict_of(plan, (outcomes,))
                if self.fallback.needs_success:
                    self.succeed(verdict.pairs)
        return record(verdict, began_ns) if is_recorded else verdict

    def peek(self, plan: Plan, *, raises: bool = False) -> Effects[Verdict]:
        """Say what `decide` would decide now; nothing is charged.

        If it *raises*, a store that is gone is a `StoreError`, not decided by the failure policies.
        """
        verdict = verdict_at_once(plan)
        if verdict is None:
            calls = Calls(self.store)
            verdict = yield from self._call_store(plan, calls, consume=False, raises=raises)
            calls.end()
        return verdict

    def decide_each(self, plans: Sequence[Plan]) -> Effects[list[Verdict]]:
        """Decide several requests, each for itself, in one round trip. Their plans are plain."""
        began_ns = read_timer()
        takes = [plan.operation().takes[0] for plan in plans]
        calls = Calls(self.store)
        replies: Replies
        try:
            replies = yield from calls.take_each(takes)
        except StoreError as error:
            replies = [error] * len(plans)
        pairs = zip(plans, replies, strict=True)
        verdicts = [self._concluded(plan, (reply,)) for plan, reply in pairs]
        if calls.is_interrupted:
            for verdict in verdicts:
                yield from self._undo(verdict, calls)
            calls.end()
        for place, verdict in enumerate(verdicts):  # one round trip: one latency
            record(verdict, began_ns, is_timed=not place)
        return verdicts

    def take_up_to(self, plan: Plan) -> Effects[PartialHit]:
        """Charge as much of one cost as fits under the only rule of *plan*."""
        began_ns = read_timer()
        (one,) = plan.rules
        calls = Calls(self.store)
        is_here = False
        try:
            granted, outcomes = yield from calls.run(TakeUpTo(one.checks))
        except StoreError as error:
            is_here, part = True, self.fallback.take_up_to(rule_checks(one), error)
        else:
            part = PartialHit(granted, conclude(one.checks, outcomes))
            self.succeed([(one, part.decision)])
        if calls.is_interrupted:
            charged = _costing(one, part.granted)
            if is_here:
                self.fallback.give_back(charged)
            else:
                yield from calls.try_all([Refund(charged.checks)])
            calls.end()
        record_part(plan, part, began_ns)
        return part

    def undo_take(self, plan: Plan, interrupted: Interrupted) -> Effects[None]:
        """Give back what a plain plan was granted by the reply to an *interrupted* caller."""
        if interrupted.reply is not None:
            yield from self._undo(verdict_of(plan, (interrupted.reply,)), Calls(self.store))

    def succeed(self, decided: Iterable[tuple[RulePlan, Decision]] = ()) -> None:
        """Record that the store has *decided* something, if an outage, unreported usage, or an
        outage that was a moment ago waits for that."""
        if self.fallback.needs_success:
            enforced = [pair for pair in decided if pair[0].rule.mode == "enforce"]
            self.fallback.succeed([(rule_checks(one), decision) for one, decision in enforced])

    # ---- reserve and settle ------------------------------------------------------------------

    def reserve(
        self, plan: Plan, name: str, ttl_ns: int, *, is_recorded: bool = True
    ) -> Effects[Verdict]:
        """Decide, with what the rules in `plan.open` charge held under *name* for *ttl_ns*."""
        began_ns = read_timer()
        verdict = verdict_at_once(plan)
        if verdict is None:
            calls = Calls(self.store)
            verdict = yield from self._reserve(plan.for_holding(), name, ttl_ns, calls)
            if calls.is_interrupted:
                yield from self._undo(verdict, calls)
                calls.end()
        return record(verdict, began_ns) if is_recorded else verdict

    def settle(self, verdict: Verdict, amounts: Mapping[str, int]) -> Effects[bool]:
        """Charge what a request really cost, by rule, in full; by default what was held.

        Once: `SettledError` after that. True if the store knew of the hold. Raises `StoreError` if
        the store could not be reached: it may be tried again, or the hold expires.
        """
        held = verdict.held
        if held is None:
            return True
        settled = held.amounts(amounts)
        held.once.do("what was held for this request was settled already")
        settle = held.settle(settled, without=held.unreported)
        calls = Calls(self.store)
        try:
            was_open = (yield from calls.run(settle)) if settle.checks else True
        except StoreError as error:
            self._correct_here(verdict, settled, error)
            held.once.undo()
            raise
        self._correct_here(verdict, settled, None)
        held.settled = settled
        record_settled(held.rules, settled)
        calls.end()
        return was_open or held.is_empty

    # ---- charge and refund -------------------------------------------------------------------

    def charge(self, costs: ExtraCosts) -> Effects[ExtraCosts]:
        """Record what requests have cost beyond what they were charged, in full.

        Returns what is left of *costs* if the store is gone: rules that decide here are charged
        here, the others are not.
        """
        charge = charge_of(costs)
        if charge is None:
            return ()
        calls = Calls(self.store)
        left: ExtraCosts = ()
        try:
            yield from calls.run(charge)
        except StoreError as error:
            left = self._charge_here(costs, error)
        calls.end()
        return left

    def record_usage(self, one: RulePlan, operation: Charge | Refund) -> Effects[Decision]:
        """Charge or refund an amount under a rule; the decision of a peek right after."""
        calls = Calls(self.store)
        try:
            outcomes = yield from calls.run(operation)
        except StoreError as error:
            amounts = rule_checks(one, operation.checks)
            if isinstance(operation, Charge):
                decision = self.fallback.charge(amounts, error)
            else:
                decision = self.fallback.refund(amounts, error)
        else:
            decision = conclude(operation.checks, outcomes)
            self.succeed([(one, decision)])
        calls.end()
        return decision

    def refund(self, verdict: Verdict) -> Effects[None]:
        """Give back all that a request was charged, and what is held for it; once.

        If the store is gone, it stays charged.
        """
        calls = _begin_undo(verdict, self.store)
        yield from self._give_back(verdict, calls)
        calls.end()

    def undo(self, verdict: Verdict) -> Effects[None]:
        """Give back all that a request was charged, and its slots."""
        calls = _begin_undo(verdict, self.store)
        yield from self._undo(verdict, calls)
        calls.end()

    def vacate(self, verdict: Verdict) -> Effects[bool]:
        """Give up the places in queues; True if there were any and none had come yet."""
        calls = Calls(self.store)
        were_there = yield from self._vacate(verdict, calls)
        calls.end()
        return were_there

    def abandon(self, verdict: Verdict) -> Effects[None]:
        """Give up the places in queues, and the slots; what was charged stays charged."""
        calls = Calls(self.store)
        yield from self._vacate(verdict, calls)
        yield from self._release(verdict, calls)
        calls.end()

    def reset(self, one: RulePlan) -> Effects[None]:
        """Forget the counters of a rule. Raises `StoreError` if the store cannot be reached."""
        calls = Calls(self.store)
        yield from calls.run(Reset(one.checks))
        self.fallback.reset(rule_checks(one))
        calls.end()

    # ---- slots -------------------------------------------------------------------------------

    def renew(self, verdict: Verdict) -> Effects[bool]:
        """Renew the slots of a request; False if one was lost. Raises `StoreError` if unknown."""
        is_held, calls = True, Calls(self.store)
        if (slots := verdict.local_slots) is not None:
            is_held = self.fallback.local.run(RenewSlot(slots.checks, slots.lease))
        if (slots := verdict.slots) is not None:
            is_held = yield from calls.run(RenewSlot(slots.checks, slots.lease))
            calls.end()
        return is_held

    def release(self, verdict: Verdict, *, raises: bool = False) -> Effects[bool]:
        """Release the slots of a request, at its end; False if one had been lost.

        If the store is gone the slots expire: False too, or a `StoreError` if it *raises*.
        """
        for slots in (verdict.slots, verdict.local_slots):
            if slots is not None:
                self.record_hold(slots, verdict.since_ns)
        calls = Calls(self.store)
        was_held = yield from self._release(verdict, calls, raises=raises)
        calls.end()
        return was_held

    def record_hold(self, slots: ReleaseSlot, since_ns: int) -> None:
        """Count that *slots*, granted at *since_ns*, are released now."""
        self._hold_times.record(slots, max(0, self.fallback.local.clock() - since_ns))

    # ---- parts of decide ---------------------------------------------------------------------

    def _prepare(self, plan: Plan) -> None:
        """Prepare the takes of *plan*, and choose its fast path; both are kept in it."""
        takes = plan.takes if plan.is_plain else ()
        plan.prepared = tuple([self._prepared(rules) for rules in takes])
        is_single = len(plan.prepared) == 1
        has_outcomes = bool(takes) and plan.prepared[0].handle.now is not None
        plan.is_immediate = has_outcomes and (is_single or not self.store.waits)
        plan.may_delay = plan.has_queue
        plan.decide = plan.template = None
        if is_single and len(plan.rules) == 1:
            self._prepare_one(plan, plan.rules[0])
        plan.engine = self  # last: threads share plans, and one that sees it uses all the rest

    def _prepare_one(self, plan: Plan, one: RulePlan) -> None:
        """Prepare the decision and the headers of *one*, the only rule of *plan*."""
        decide = plan.prepared[0].handle.decide
        if decide is not None and not plan.shadows and plan.is_recorded and not plan.awaits_places:
            plan.decide = decide
            plan.allowed_cell = RECORDER.cell(one.rule.id, "allowed", "store")
        if one.is_shown and not plan.may_delay:
            plan.template = rule_template(one.rule.id, one.limits)

    def _prepared(self, rules: Sequence[RulePlan]) -> PreparedTake:
        checks = [check for one in rules for check in one.checks]
        keys, costs = [check.key for check in checks], tuple([check.cost for check in checks])
        return PreparedTake(self._takes.of(checks), tuple(keys), ONE if costs == ONE else costs)

    def _take_now(self, plan: Plan) -> Verdict | None:
        """Decide by the prepared takes of *plan*; None if the store has to be called."""
        replies: list[Outcomes | StoreError] = []
        for handle, keys, costs in plan.prepared:
            # Only the first may have to call the store: where there are more, it does not wait.
            take = handle.take if replies else handle.now
            try:
                reply = None if take is None else take(keys, costs)
            except StoreError as error:
                replies.append(error)
            else:
                if reply is None:
                    return None
                replies.append(reply)
        try:
            return verdict_of(plan, replies)
        except StoreError as error:
            return self.decide_here(plan, error)

    def _decide_unprepared(self, plan: Plan) -> Effects[Verdict]:
        """Decide a plan that is not one prepared take: with slots, blocks, markers of repeated
        requests or shadow rules, or without rules."""
        verdict = verdict_at_once(plan)
        if verdict is None:
            calls = Calls(self.store)
            verdict = yield from self._call_store(plan, calls, consume=True)
            if calls.is_interrupted:
                yield from self._undo(verdict, calls)
                calls.end()
        return verdict

    def _call_store(
        self, plan: Plan, calls: Calls, *, consume: bool, raises: bool = False
    ) -> Effects[Verdict]:
        """Decide a plan by one operation of the store."""
        try:
            replies, without = yield from _take_all(plan, calls, consume=consume)
            verdict = verdict_of(plan, replies, consumed=consume, without=without)
        except StoreError as error:
            if raises:
                raise
            verdict = self.decide_here(plan, error, consume=consume)
        else:
            self.succeed(verdict.pairs)
        return self._with_slots(verdict)

    def _with_slots(self, verdict: Verdict) -> Verdict:
        """*verdict* with the time of its slots, or an estimate of when one is free."""
        if verdict.slots is not None or verdict.local_slots is not None:
            verdict.since_ns = self.fallback.local.clock()
        self._hold_times.estimate(verdict)
        return verdict

    def _concluded(self, plan: Plan, replies: Replies) -> Verdict:
        try:
            verdict = verdict_of(plan, replies)
        except StoreError as error:
            return self.decide_here(plan, error)
        self.succeed(verdict.pairs)
        return verdict

    def decide_here(
        self, plan: Plan, error: StoreError, *, consume: bool = True, is_reported: bool = True
    ) -> Verdict:
        """Decide in this process, as the store has raised *error*: each rule by its failure policy,
        all or nothing."""
        rules = [rule_checks(one) for one in plan.deciding]
        decisions = self.fallback.decide(
            rules, error, consume=consume, lease=plan.lease, is_reported=is_reported
        )
        verdict = verdict_without_store(plan, decisions)
        if consume and verdict.allowed and plan.lease is not None:
            slots = [check for one in plan.deciding for check in rule_checks(one, one.slots).shared]
            verdict.local_slots = ReleaseSlot(tuple(slots), plan.lease) if slots else None
        return verdict

    # ---- parts of reserve --------------------------------------------------------------------

    def _reserve(self, plan: Plan, name: str, ttl_ns: int, calls: Calls) -> Effects[Verdict]:
        replies: list[Outcomes | StoreError] = []
        left: list[RulePlan] = []
        seen: frozenset[str] = frozenset()
        for one in holdings(plan, name):
            reply = yield from self._hold(one, ttl_ns, calls)
            seen |= replayed(one.stages)
            replies.append(reply)
            if not isinstance(reply, StoreError) and _all_allowed(reply):
                left += one.left_open
        try:
            verdict = verdict_of(plan, replies, without=seen)
        except StoreError as error:
            verdict = self._without_reservation(plan, error)
            left = plan.left_open
        if left and verdict.allowed:
            verdict.held = Held(name, tuple(left))
            record_reserved(left)
        elif left:
            yield from calls.try_all([Held(name, tuple(left)).give_back])
        return self._with_slots(verdict)

    def _hold(self, holding: Holding, ttl_ns: int, calls: Calls) -> Effects[Outcomes | StoreError]:
        """Hold and take; the outcomes. After a denial the rest is only peeked at."""
        held: Outcomes = ()
        taken: Outcomes = ()
        is_held = False
        try:
            for hold in holding.holds(ttl_ns):
                if _all_allowed(held):
                    reply = yield from calls.run(hold)
                    is_held |= _all_allowed(reply)
                else:
                    reply = yield from calls.run(Take(hold.checks, consume=False))
                held += reply
            granted = _all_allowed(held)
            while (take := holding.take(consume=granted)) is not None:
                taken = yield from calls.run(take)
                if not holding.advance(taken):
                    break
            if is_held and not (granted and _all_allowed(taken)):
                yield from calls.run(holding.undo()[0])
                held = yield from calls.run(holding.look())
        except StoreError as error:
            if held or not error.is_undone:  # later: the caller has waited long enough
                undoing = self._undo_later(holding)
                yield Background(undoing, "headgate-undo", in_thread=False)
            return error
        return holding.outcomes(held, taken)

    def _undo_later(self, holding: Holding) -> Effects[None]:
        end = begin_undoing(Run(self.store, None))
        try:
            yield from Calls(self.store).try_all(holding.undo())
        finally:
            end()

    def _without_reservation(self, plan: Plan, error: StoreError) -> Verdict:
        """Decide in this process; what is settled later is reported to the store then."""
        verdict = self.decide_here(plan, error, is_reported=False)
        if verdict.allowed:
            for one in plan.deciding:
                if one.rule.id not in plan.open:
                    self.fallback.report_later(rule_checks(one), error)
        return verdict

    # ---- parts of refund and release ---------------------------------------------------------

    def _undo(self, verdict: Verdict, calls: Calls) -> Effects[None]:
        """Give back all that an interrupted caller was granted."""
        yield from self._give_back(verdict, calls)
        yield from self._release(verdict, calls)

    def _give_back(self, verdict: Verdict, calls: Calls) -> Effects[None]:
        self._refund_here(verdict)
        held = verdict.held
        steps = (refund_of(verdict), None if held is None else held.end())
        yield from calls.try_all([step for step in steps if step is not None])
        yield from self._vacate(verdict, calls)

    def _vacate(self, verdict: Verdict, calls: Calls) -> Effects[bool]:
        if not verdict.is_first("vacate"):  # a second time could take the places of others
            return False
        were_there = [
            self.fallback.cancel_queued(rule_checks(one, (check,)), (place_ns,))
            for one, check, place_ns in places_of(verdict, is_here)
        ]
        if (step := cancellation_of(verdict)) is not None:
            try:
                were_there.append((yield from calls.run(step)))
            except StoreError:
                were_there.append(False)
        return bool(were_there) and all(were_there)

    def _release(self, verdict: Verdict, calls: Calls, *, raises: bool = False) -> Effects[bool]:
        was_held = True
        if verdict.local_slots is not None:
            was_held = self.fallback.local.run(verdict.local_slots)
        if verdict.slots is not None:
            try:
                was_held = yield from calls.run(verdict.slots)
            except StoreError:
                if raises:
                    raise
                was_held = False  # the slots are free when their lease has expired
        return was_held

    # ---- changes in this process -------------------------------------------------------------

    def _refund_here(self, verdict: Verdict) -> None:
        settled = {} if verdict.held is None else verdict.held.corrected or {}
        for one, _ in charged(verdict, is_here):
            amount = settled.get(one.rule.id, one.cost)
            if amount:
                self.fallback.give_back(_costing(one, amount, one.amounts))

    def _charge_here(self, costs: ExtraCosts, error: StoreError) -> ExtraCosts:
        left = []
        for one, more in costs:
            extra = _costing(one, more)
            if not more or not extra.checks:
                continue
            if self.fallback.charge(extra, error).source == "fail_closed":
                left.append((one, more))
        return left

    def _correct_here(
        self, verdict: Verdict, amounts: Mapping[str, int], error: StoreError | None
    ) -> None:
        """Correct what was charged here by an estimate. If the store could not be reached because
        of *error*, it is reported with all the rest."""
        held = verdict.held
        if held is None or held.corrected is not None:
            return
        held.corrected = amounts
        here = held.decided_here(verdict)
        for one in here:
            amount = amounts[one.rule.id]
            self.fallback.correct(rule_checks(one, one.amounts), amount - one.cost)
            if error is not None:
                self.fallback.report_later(_costing(one, amount, one.amounts), error)
        if error is not None and error.is_undone:
            held.unreported = frozenset([one.rule.id for one in here])


def _begin_undo(verdict: Verdict, store: Store) -> Calls:
    """The calls that give back what a request was charged; once, else `SettledError`."""
    if not verdict.is_first("undo"):
        raise SettledError("what this request was charged was given back already")
    return Calls(store)


def _all_allowed(outcomes: Outcomes) -> bool:
    for one in outcomes:  # noqa: SIM110 (an interrupt in a generator expression is only printed)
        if not one.allowed:
            return False
    return True


def _take_all(
    plan: Plan, calls: Calls, *, consume: bool
) -> Effects[tuple[Replies, frozenset[str]]]:
    """Make the takes of a plan; the reply to each, and the rules under which it is a free retry."""
    stages: Stages = {}
    replies = list((yield from calls.take_each(plan.operation(consume=consume).takes)))
    for place, rules in enumerate(plan.takes):
        reply = replies[place]
        while not isinstance(reply, StoreError) and advance(rules, stages, reply):
            try:
                reply = yield from calls.run(plan.take(rules, stages, consume=consume))
            except StoreError as error:
                if rules is plan.deciding:
                    raise
                reply = error
        replies[place] = reply
    return replies, replayed(stages)


def rule_checks(one: RulePlan, checks: tuple[Check, ...] | None = None) -> RuleChecks:
    """The *checks* of a rule for the fallback; by default all."""
    return RuleChecks(one.checks if checks is None else checks, one.rule.on_failure)


def _costing(one: RulePlan, amount: int, checks: tuple[Check, ...] | None = None) -> RuleChecks:
    rates = one.rates if checks is None else checks
    return rule_checks(one, tuple([check.with_cost(amount) for check in rates]))
