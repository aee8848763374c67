"""What one process decides while its store is gone, and what it tells afterwards."""

from __future__ import annotations

import logging
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from headgate.decision import Decision, OnFailure
from headgate.errors import StoreError
from headgate.limits import Concurrency, FixedWindow, Limit, TokenBucket
from headgate.observability import METRICS
from headgate.runtime.fallback import fallback_of
from headgate.runtime.local_share import RuleChecks
from headgate.stores.base import conclude
from headgate.stores.operations import Check, ReleaseSlot, RenewSlot, Take
from headgate.units import SECOND
from tests.support.failing_fallback import FailingStore, reconcile

if TYPE_CHECKING:
    from headgate.errors import StoreFault

TEN = FixedWindow(10, 3_600)
OPEN, CLOSED, LOCAL = OnFailure(), OnFailure("fail_closed"), OnFailure("local")
HALF = OnFailure(share=Fraction(1, 2))
GONE = StoreError("gone", reason="circuit_open")
SLOW = StoreError("slow", reason="timeout")


def asked(
    on_failure: OnFailure = OPEN, cost: int = 1, *limits: Limit, key: str = "k"
) -> RuleChecks:
    checks = [Check(f"g{n}", key, limit, cost) for n, limit in enumerate(limits or (TEN,))]
    return RuleChecks(tuple(checks), on_failure)


class Desk:
    """A fallback and its store, to which a test reports when it likes."""

    def __init__(self) -> None:
        self.store = FailingStore()
        self.clock = self.store.clock
        self.fallback = fallback_of(self.store, self.clock)

    def decide(
        self, *parts: RuleChecks, error: StoreError = GONE, **options: Any
    ) -> list[Decision]:
        return self.fallback.decide(parts, error, **options)

    def come_back(self) -> None:
        """The store answers again, after a while."""
        self.clock.advance(2)
        self.fallback.succeed()
        reconcile(self.fallback)

    def hit(self, rule: RuleChecks) -> Decision:
        """What comes of a request: the decision of the store, or of this process."""
        try:
            outcomes = self.store.run(Take(rule.checks))
        except StoreError as error:
            return self.decide(rule, error=error)[0]
        decision = conclude(rule.checks, outcomes)
        if self.fallback.needs_success:
            self.fallback.succeed([(rule, decision)])
        return decision

    def used(self, group: str = "g0", key: str = "k") -> int:
        return self.store.inner.used_in(group, key)


def sources(decisions: list[Decision]) -> list[tuple[bool, str]]:
    return [(one.allowed, one.source) for one in decisions]


def test_open_admits_its_share_and_then_refuses_with_the_exact_wait() -> None:
    desk = Desk()
    said = [desk.decide(asked(HALF))[0] for _ in range(7)]
    assert sources(said) == [(True, "fail_open")] * 5 + [(False, "fallback")] * 2
    assert [one.remaining for one in said] == [4, 3, 2, 1, 0, 0, 0]
    assert said[-1].limit == TEN
    assert said[-1].retry_after == 2_400
    desk.clock.advance(2_400)
    assert desk.decide(asked(HALF))[0].allowed


def test_local_enforces_its_share_under_its_own_name() -> None:
    desk = Desk()
    local = OnFailure("local", Fraction(1, 5))
    said = [desk.decide(asked(local))[0] for _ in range(3)]
    assert sources(said) == [(True, "local"), (True, "local"), (False, "local")]


def test_closed_refuses_and_keeps_the_others_from_being_charged() -> None:
    desk = Desk()
    for _ in range(20):
        said = desk.decide(asked(OPEN), asked(CLOSED, key="other"))
        assert sources(said) == [(True, "fail_open"), (False, "fail_closed")]
    assert desk.decide(asked(OPEN))[0].remaining == 9


def test_all_or_nothing_over_all_modes() -> None:
    desk = Desk()
    tight = asked(LOCAL, 1, FixedWindow(2, 3_600), key="tight")
    said = [desk.decide(asked(OPEN), tight) for _ in range(4)]
    assert [[one.allowed for one in each] for each in said] == [[True, True]] * 2 + [
        [True, False]
    ] * 2
    assert desk.decide(asked(OPEN), consume=False)[0].remaining == 8


@pytest.mark.parametrize("verb", ["give_back", "refund"])
def test_what_is_given_back_is_not_reported_though_the_counter_is_in_use(verb: str) -> None:
    desk = Desk()
    desk.decide(asked(OPEN, 5))
    desk.come_back()
    desk.decide(asked())
    if verb == "give_back":
        desk.fallback.give_back(asked())
    else:
        desk.fallback.refund(asked(), GONE)
    desk.come_back()
    assert desk.used() == 5


def test_stacked_limits_are_all_or_nothing_and_the_one_that_refuses_says_so() -> None:
    desk = Desk()
    stack = asked(OPEN, 1, TEN, FixedWindow(2, 60))
    said = [desk.decide(stack)[0] for _ in range(3)]
    assert sources(said) == [(True, "fail_open")] * 2 + [(False, "fallback")]
    assert [part.source for part in said[2].limits] == ["fail_open", "fallback"]
    assert said[2].limits[0].remaining == 8


def test_what_does_not_fit_in_a_share_may_come_again_and_what_never_fits_may_not() -> None:
    desk = Desk()
    (over_the_share,) = desk.decide(asked(HALF, 6))
    (over_the_limit,) = desk.decide(asked(HALF, 11))
    assert (over_the_share.allowed, over_the_share.retry_after) == (False, 1)
    assert (over_the_limit.allowed, over_the_limit.retry_after) == (False, None)


def test_nothing_costs_nothing() -> None:
    desk = Desk()
    assert all(desk.decide(asked(OPEN, 0))[0].allowed for _ in range(20))


def test_open_becomes_what_then_says_and_goes_on_where_it_was(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk()
    local = OnFailure(open_ns=60 * SECOND, then="local")
    closed = OnFailure(open_ns=60 * SECOND)
    desk.decide(asked(local, 4))
    desk.clock.advance(59)
    assert desk.decide(asked(local))[0].source == "fail_open"
    desk.clock.advance(1)
    (said,) = desk.decide(asked(local))
    assert (said.source, said.remaining) == ("local", 4)
    assert desk.decide(asked(closed, key="b"))[0].source == "fail_closed"
    desk.decide(asked(local))
    events = [record.__dict__.get("event") for record in caplog.records]
    assert events == ["store_outage_began", "store_outage_escalated", "store_outage_escalated"]


def test_an_outage_is_told_when_it_begins_and_when_it_ends_with_what_was_decided(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="headgate.store")
    desk = Desk()
    for _ in range(6):
        desk.decide(asked(HALF))
    desk.decide(asked(CLOSED))
    desk.decide(asked(LOCAL, key="l"))
    assert desk.fallback.out_for_ns == 0
    desk.come_back()
    first, last = caplog.records
    assert first.__dict__["event"] == "store_outage_began"
    assert first.__dict__["reason"] == "circuit_open"
    assert last.__dict__["event"] == "store_outage_ended"
    assert last.__dict__["lasted_seconds"] == 2
    assert last.__dict__["decided"] == {
        "fail_open": 5,
        "fallback": 1,
        "fail_closed": 1,
        "local": 1,
    }
    assert desk.fallback.out_for_ns is None


def test_every_request_is_measured_by_how_it_was_decided() -> None:
    modes = ("fail_open", "fallback", "local", "fail_closed", "escalated")

    def counted() -> dict[str, float]:
        return {mode: METRICS.value("decisions_without_store", mode=mode) for mode in modes}

    before, active = counted(), METRICS.value("fail_mode_active")
    desk = Desk()
    desk.decide(asked(OPEN), asked(LOCAL, key="b"))
    desk.decide(asked(OPEN, 10))
    desk.decide(asked(LOCAL, key="b"))
    desk.decide(asked(OPEN), asked(CLOSED))
    desk.decide(asked(OnFailure(open_ns=0), key="c"))
    after = counted()
    assert [after[mode] - before[mode] for mode in modes] == [1, 1, 1, 1, 1]
    assert METRICS.value("fail_mode_active") == active + 1
    desk.clock.advance(30)
    assert METRICS.value("fail_mode_seconds") >= 30
    desk.come_back()
    assert METRICS.value("fail_mode_active") == active


@pytest.mark.parametrize("share", [HALF, OPEN])
def test_what_was_admitted_is_charged_when_the_store_is_back_and_once(share: OnFailure) -> None:
    desk = Desk()
    for _ in range(4):
        desk.decide(asked(share))
    desk.come_back()
    assert desk.used() == 4
    desk.come_back()
    reconcile(desk.fallback)
    assert desk.used() == 4


def test_the_store_is_never_charged_beyond_what_is_left_there() -> None:
    desk = Desk()
    desk.store.run(_take(7))
    desk.decide(asked(OPEN, 6))
    desk.come_back()
    assert desk.used() == 10
    assert desk.store.inner.run(_take(0))[0].remaining == 0


def test_what_no_longer_counts_here_is_not_charged() -> None:
    desk = Desk()
    bucket = TokenBucket(10, 1)
    desk.decide(asked(OPEN, 8, bucket))
    desk.clock.advance(5)
    desk.come_back()
    assert desk.used() == 1


@pytest.mark.parametrize(("reason", "used"), [("timeout", 0), ("circuit_open", 1)])
def test_what_the_store_may_know_already_is_not_told(reason: StoreFault, used: int) -> None:
    desk = Desk()
    desk.decide(asked(), error=StoreError("?", reason=reason))
    desk.come_back()
    assert desk.used() == used


def test_refused_requests_and_looks_are_not_owed() -> None:
    desk = Desk()
    desk.decide(asked(), consume=False)
    desk.decide(asked(), asked(CLOSED, key="b"))
    desk.decide(asked(OPEN, 11))
    desk.come_back()
    assert desk.used() == 0


def test_the_share_holds_when_the_store_goes_again_at_once() -> None:
    desk = Desk()
    admitted = 0
    for _ in range(5):
        admitted += sum(desk.decide(asked(HALF))[0].allowed for _ in range(10))
        desk.come_back()
    assert admitted == 5
    assert desk.used() == 5


def flap(desk: Desk, *rules: RuleChecks) -> list[Decision]:
    """The store goes and comes back, and decides; then it goes again. The decisions by then."""
    desk.store.fault = "circuit_open"
    desk.fallback.fail(GONE)
    desk.clock.advance(2)
    desk.store.fault = None
    for rule in rules:
        desk.hit(rule)
    desk.store.fault = "circuit_open"
    return [desk.hit(rule) for rule in rules]


def test_a_store_that_comes_and_goes_grants_no_fresh_share_of_what_it_knows_to_be_used() -> None:
    desk = Desk()
    desk.store.run(_take(10))
    (said,) = flap(desk, asked())
    assert (said.allowed, said.source) == (False, "fallback")


@pytest.mark.parametrize(("used", "left"), [(3, 3), (4, 3), (5, 2), (8, 1), (9, 0)])
def test_a_share_of_what_the_store_has_left_is_left_here(used: int, left: int) -> None:
    desk = Desk()
    desk.store.run(_take(used - 1))
    flap(desk, asked(HALF))
    assert desk.hit(asked(HALF, 0)).remaining == max(left - 1, 0)


def test_one_hour_after_the_store_knew_of_usage_it_does_not_count_here() -> None:
    desk = Desk()
    desk.store.run(_take(10))
    flap(desk, asked())
    desk.clock.advance(3_600)
    assert sum(desk.hit(asked()).allowed for _ in range(12)) == 10


def test_what_the_store_says_is_used_is_not_reported_to_it() -> None:
    desk = Desk()
    bucket = TokenBucket(10, 1)
    desk.decide(asked(OPEN, 4, bucket))
    desk.clock.advance(4)
    desk.store.run(Take((Check("g0", "k", bucket, 8),)))
    desk.hit(asked(OPEN, 1, bucket))
    reconcile(desk.fallback)
    assert desk.used() == 9


def test_other_limits_of_a_request_are_remembered_too_and_slots_are_not() -> None:
    desk = Desk()
    stack = asked(OPEN, 1, TEN, FixedWindow(2, 60), Concurrency(5, 60))
    desk.decide(stack, lease="one")
    desk.clock.advance(2)
    outcomes = desk.store.run(Take(stack.checks, lease="two"))
    desk.fallback.succeed([(stack, conclude(stack.checks, outcomes))])
    assert [desk.fallback.local.used_in(f"g{n}", "k") for n in range(3)] == [1, 1, 1]
    outcomes = desk.store.run(Take(stack.checks, lease="three"))
    desk.fallback.succeed([(stack, conclude(stack.checks, outcomes))])
    assert [desk.fallback.local.used_in(f"g{n}", "k") for n in range(3)] == [2, 2, 1]


def test_a_minute_after_the_last_failure_nothing_is_recorded_any_more() -> None:
    desk = Desk()
    desk.fallback.fail(GONE)
    desk.clock.advance(59)
    desk.hit(asked())
    assert desk.fallback.needs_success
    desk.clock.advance(1)
    desk.hit(asked())
    assert not desk.fallback.needs_success
    assert not desk.fallback.is_out


def test_a_rule_that_fails_closed_has_no_counters_here() -> None:
    desk = Desk()
    desk.store.run(_take(10))
    flap(desk, asked(CLOSED))
    assert len(desk.fallback.local) == 0


def test_if_the_store_goes_again_the_merge_goes_on_later() -> None:
    desk = Desk()
    for n in range(120):
        desk.decide(asked(key=f"k{n}"))
    desk.store.fault = "circuit_open"
    desk.come_back()
    desk.fallback.fail(GONE)
    desk.store.fault = None
    desk.come_back()
    assert sum(desk.used(key=f"k{n}") for n in range(120)) == 120


def test_a_charge_whose_answer_is_lost_is_not_repeated() -> None:
    desk = Desk()
    for n in range(60):
        desk.decide(asked(key=f"k{n}"))
    desk.store.loses_answers = True
    desk.come_back()
    desk.store.loses_answers = False
    for _ in range(3):
        desk.fallback.fail(SLOW)
        desk.come_back()
    assert [desk.used(key=f"k{n}") for n in range(60)] == [1] * 60


def test_what_is_reported_is_bounded_and_what_is_dropped_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk()
    monkeypatch.setattr(desk.fallback._unreported, "_max_counters", 10)
    before = METRICS.value("fallback_dropped")
    for n in range(25):
        desk.decide(asked(key=f"k{n}"))
    assert METRICS.value("fallback_dropped") - before == 15
    desk.come_back()
    assert sum(desk.used(key=f"k{n}") for n in range(25)) == 10


def test_charges_and_refunds_are_made_here_and_told_later() -> None:
    desk = Desk()
    assert desk.fallback.charge(asked(OPEN, 4), GONE).remaining == 6
    assert desk.fallback.refund(asked(OPEN, 1), GONE).remaining == 7
    assert not desk.fallback.charge(asked(CLOSED, 4), GONE)
    desk.come_back()
    assert desk.used() == 3


def test_slots_are_granted_renewed_and_released_here() -> None:
    desk = Desk()
    slots = asked(OPEN, 1, Concurrency(1, 60))
    local = desk.fallback.local
    assert desk.decide(slots, lease="a")[0]
    assert not desk.decide(slots, lease="b")[0]
    assert local.run(RenewSlot(slots.shared, "a"))
    assert not local.run(RenewSlot(slots.shared, "b"))
    assert local.run(ReleaseSlot(slots.shared, "a"))
    assert desk.decide(slots, lease="b")[0]
    desk.come_back()
    assert desk.used() == 0


def test_a_reset_forgets_what_is_reported() -> None:
    desk = Desk()
    desk.decide(asked(OPEN, 4))
    desk.fallback.reset(asked(OPEN, 0))
    assert desk.decide(asked(), consume=False)[0].remaining == 10
    desk.come_back()
    assert desk.used() == 0


def test_the_circuit_breaker_ends_an_outage() -> None:
    class Breaker:
        where = "here"
        state = "open"
        is_open = True

        def on_change(self, callback: Any) -> None:
            self.tell = callback

    desk, breaker = Desk(), Breaker()
    desk.fallback.follow(breaker)
    desk.decide(asked())
    desk.come_back()
    assert desk.fallback.is_out, "another part of the store may have answered"
    breaker.tell("half open")
    assert desk.fallback.is_out
    breaker.state = "closed"
    breaker.tell("closed")
    assert not desk.fallback.is_out
    reconcile(desk.fallback)
    assert desk.used() == 1


def test_all_who_use_a_store_share_its_fallback_and_other_stores_have_others() -> None:
    one, other = FailingStore(), FailingStore()
    assert fallback_of(one) is fallback_of(one, one.clock)
    assert fallback_of(one) is not fallback_of(other)


def test_a_forked_process_does_not_report_the_usage_of_its_parent() -> None:
    desk = Desk()
    desk.decide(asked(OPEN, 4))
    desk.fallback.after_fork()
    desk.come_back()
    assert desk.used() == 0
    assert desk.decide(asked(), consume=False)[0].remaining == 6, "but it counts it"


def _take(cost: int) -> Any:
    return Take((Check("g0", "k", TEN, cost),))


class Parts:
    """A guard of a store that is not in full use."""

    where, state = "here", "ramping"

    def __init__(self, *, is_open: bool) -> None:
        self.is_open = is_open

    def on_change(self, _callback: object) -> None:
        """It never changes."""


@pytest.mark.parametrize(("is_open", "source"), [(False, "fail_open"), (True, "fail_closed")])
def test_a_store_that_answers_some_calls_escalates_nothing_unless_a_part_of_it_is_gone(
    source: str, *, is_open: bool
) -> None:
    desk = Desk()
    desk.fallback.follow(Parts(is_open=is_open))
    patient = OnFailure(open_ns=10 * SECOND)
    assert desk.decide(asked(patient))[0].source == "fail_open"
    for _ in range(3):
        desk.clock.advance(8)
        desk.fallback.succeed()
        assert desk.fallback.is_out
    assert desk.decide(asked(patient))[0].source == source
    desk.clock.advance(11)
    assert desk.decide(asked(patient))[0].source == "fail_closed"
