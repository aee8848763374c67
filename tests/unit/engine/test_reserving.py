"""Costs that are known only afterwards: reserved, settled or given back, over the memory store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest

from headgate.decision import OnFailure
from headgate.engine.request import Request
from headgate.errors import CostError, SettledError, StoreError
from headgate.limits import Concurrency, FixedWindow, Limit, TokenBucket
from headgate.policy.model import Cost, Idempotency, Match, Policy, Rule
from headgate.rule_engine import AsyncRuleEngine, RuleEngine
from headgate.stores import MemoryStore, Store
from headgate.testing import ManualClock
from headgate.units import SECOND
from tests.support.async_stores import LoopStore
from tests.support.unbroken_stores import unbroken, unbroken_async

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from headgate.stores.operations import Operation

HUNDRED, TEN, ONE_SLOT = FixedWindow(100, 3_600), FixedWindow(10, 3_600), Concurrency(1, 600)


def rule(name: str, *limits: Limit, **fields: Any) -> Rule:
    return Rule(name, Match(), ("ip",), {None: limits or (HUNDRED,)}, **fields)


def ask(**headers: str) -> Request:
    lines = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Request("POST", "/", headers=lines, peer="1.2.3.4")


class Ledger(Store):
    """A memory store that keeps a list of what it was asked, and can be gone."""

    def __init__(self) -> None:
        self.clock: ManualClock = ManualClock(1_200)
        self.inner = MemoryStore(clock=self.clock)
        self.asked: list[Operation[Any]] = []
        self.is_gone = False

    def run(self, operation: Operation[Any]) -> Any:
        self.asked.append(operation)
        if self.is_gone:
            raise StoreError("gone")
        return self.inner.run(operation)


class Awaited(LoopStore):
    """The same for an event loop, suspended before and after everything it does."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def arun(self, operation: Operation[Any]) -> Any:
        await asyncio.sleep(0)
        reply = self._ledger.run(operation)
        await asyncio.sleep(0)
        return reply


class Desk(RuleEngine):
    def __init__(self, *rules: Rule) -> None:
        self.ledger = Ledger()
        super().__init__(Policy(rules), store=unbroken(self.ledger))


class AsyncDesk:
    """An async engine with the verbs of a blocking one."""

    def __init__(self, runner: asyncio.Runner, rules: tuple[Rule, ...]) -> None:
        self.ledger = Ledger()
        self._runner = runner
        self._engine = AsyncRuleEngine(Policy(rules), store=unbroken_async(Awaited(self.ledger)))

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        asked: Callable[..., Coroutine[Any, Any, Any]] = getattr(self._engine, verb)
        return lambda *given, **named: self._runner.run(asked(*given, **named))


Desks = Callable[..., Desk]


@pytest.fixture(params=["sync", "async"])
def make(request: pytest.FixtureRequest) -> Iterator[Desks]:
    """Make a desk for rules: a blocking engine, then an async one."""
    with asyncio.Runner() as runner:
        if request.param == "sync":
            yield Desk
        else:
            yield lambda *rules: cast("Desk", AsyncDesk(runner, rules))


def left(desk: Desk) -> dict[str, int]:
    """What each rule has left."""
    seen = desk.peek(ask(), cost=0)
    return {one.rule.id: one.decision.remaining for one in seen.rules}


def test_what_is_reserved_is_out_of_reach_until_it_is_settled(make: Desks) -> None:
    desk = make(rule("budget", TEN))
    verdict = desk.reserve(ask(), cost=8)
    assert verdict.held is not None
    assert (verdict.allowed, verdict.held.ids) == (True, ["budget"])
    assert left(desk) == {"budget": 2}
    assert not desk.reserve(ask(), cost=3)
    assert not desk.check(ask(), cost=3)
    assert desk.settle(verdict, 4)
    assert left(desk) == {"budget": 6}


@pytest.mark.parametrize(
    ("actual", "remaining"),
    [(0, 100), (3, 97), (20, 80), (None, 80), (60, 40), ({"budget": 7}, 93), ({"other": 7}, 80)],
)
def test_a_settled_request_is_charged_what_it_really_cost(
    make: Desks, actual: Any, remaining: int
) -> None:
    desk = make(rule("budget"))
    verdict = desk.reserve(ask(), cost=20)
    assert desk.settle(verdict, actual)
    assert left(desk) == {"budget": remaining}


def test_what_is_beyond_the_limit_is_recorded_in_full_and_worked_off(make: Desks) -> None:
    desk = make(rule("budget", TokenBucket(10, 1)))
    verdict = desk.reserve(ask(), cost=5)
    assert desk.settle(verdict, 40)
    assert left(desk) == {"budget": 0}
    refused = desk.check(ask())
    assert (refused.allowed, refused.retry_after) == (False, 31.0)
    desk.ledger.clock.advance(31)
    assert desk.check(ask())
    assert not desk.check(ask())


def test_several_rules_are_reserved_all_or_nothing(make: Desks) -> None:
    desk = make(rule("wide"), rule("tight", TEN), rule("stack", HUNDRED, TEN))
    refused = desk.reserve(ask(), cost={"wide": 5, "tight": 11})
    assert (refused.allowed, refused.held) == (False, None)
    assert refused.denied_by is not None
    assert refused.denied_by.rule.id == "tight"
    assert left(desk) == {"wide": 100, "tight": 10, "stack": 10}
    verdict = desk.reserve(ask(), cost=4)
    assert left(desk) == {"wide": 96, "tight": 6, "stack": 6}
    assert desk.settle(verdict, {"wide": 1, "tight": 2, "stack": 3})
    assert left(desk) == {"wide": 99, "tight": 8, "stack": 7}


def test_a_slot_is_taken_beside_what_is_reserved(make: Desks) -> None:
    desk = make(rule("budget"), rule("known"), rule("slots", ONE_SLOT))
    verdict = desk.reserve(ask(), cost={"budget": 10})
    assert verdict.allowed
    assert left(desk) == {"budget": 90, "known": 99, "slots": 0}
    refused = desk.reserve(ask(), cost={"budget": 10})
    assert (refused.allowed, refused.held, refused.slots) == (False, None, None)
    assert left(desk) == {"budget": 90, "known": 99, "slots": 0}
    assert desk.settle(verdict, 3)
    desk.release(verdict)
    desk.release(refused)
    assert left(desk) == {"budget": 97, "known": 99, "slots": 1}


def test_what_does_not_fit_takes_no_slot(make: Desks) -> None:
    desk = make(rule("budget", TEN), rule("both", HUNDRED, ONE_SLOT))
    refused = desk.reserve(ask(), cost={"budget": 11})
    assert (refused.allowed, refused.held, refused.slots) == (False, None, None)
    assert left(desk) == {"budget": 10, "both": 1}
    assert desk.reserve(ask(), cost={"budget": 10})
    assert left(desk) == {"budget": 0, "both": 0}


def test_slots_alone_leave_nothing_to_settle(make: Desks) -> None:
    desk = make(rule("slots", ONE_SLOT))
    verdict = desk.reserve(ask(), cost=5)
    assert (verdict.allowed, verdict.held, left(desk)) == (True, None, {"slots": 0})
    desk.release(verdict)
    assert left(desk) == {"slots": 1}


def test_what_is_no_estimate_is_charged_at_once_and_refills_from_then_on(make: Desks) -> None:
    desk = make(
        rule("tokens"), rule("requests", TokenBucket(10, 1), cost=Cost(default=4)), rule("plain")
    )
    verdict = desk.reserve(ask(), cost={"tokens": 50})
    assert verdict.held is not None
    assert verdict.held.ids == ["tokens"]
    assert left(desk) == {"tokens": 50, "requests": 6, "plain": 99}
    desk.ledger.clock.advance(3)
    assert left(desk) == {"tokens": 50, "requests": 9, "plain": 99}
    assert desk.settle(verdict, {"tokens": 20, "plain": 30}), "and is not settled again"
    assert left(desk) == {"tokens": 80, "requests": 9, "plain": 99}
    desk.ledger.clock.advance(60)
    assert left(desk) == {"tokens": 80, "requests": 10, "plain": 99}


def test_a_reservation_lapses_and_is_charged_if_it_is_settled_after_all(make: Desks) -> None:
    desk = make(rule("budget"), rule("known"))
    verdict = desk.reserve(ask(), cost={"budget": 10}, ttl=5)
    desk.ledger.clock.advance(4.999)
    assert left(desk) == {"budget": 90, "known": 99}
    desk.ledger.clock.advance(0.001)
    assert left(desk) == {"budget": 100, "known": 99}
    assert not desk.settle(verdict, 4), "it was no longer held"
    assert left(desk) == {"budget": 96, "known": 99}


def test_to_settle_again_is_an_error(make: Desks) -> None:
    desk = make(rule("budget"))
    verdict = desk.reserve(ask(), cost=10)
    assert desk.settle(verdict)
    with pytest.raises(SettledError, match="settled already"):
        desk.settle(verdict, 0)
    assert left(desk) == {"budget": 90}


def test_a_shadow_is_held_and_settled_beside_and_never_decides(make: Desks) -> None:
    desk = make(rule("live"), rule("trial", TEN, mode="shadow"), rule("roomy", mode="shadow"))
    verdict, other = desk.reserve(ask(), cost=8), desk.reserve(ask(), cost=8)
    assert (verdict.allowed, other.allowed) == (True, True)
    assert [one.rule.id for one in other.would_deny] == ["trial"]
    assert left(desk) == {"live": 84, "trial": 2, "roomy": 84}
    assert desk.settle(verdict, 5)
    assert desk.settle(other, 5)
    assert left(desk) == {"live": 90, "trial": 5, "roomy": 90}


def test_a_refused_request_holds_nothing_in_shadow(make: Desks) -> None:
    desk = make(
        rule("live", TEN), rule("trial", mode="shadow"), rule("slots", ONE_SLOT, mode="shadow")
    )
    refused = desk.reserve(ask(), cost=11)
    assert (refused.allowed, refused.held) == (False, None)
    desk.release(refused)
    assert left(desk) == {"live": 10, "trial": 100, "slots": 1}


def test_shadows_alone_let_everything_through(make: Desks) -> None:
    desk = make(rule("trial", TEN, mode="shadow"))
    verdicts = [desk.reserve(ask(), cost=6) for _ in range(2)]
    assert [one.allowed for one in verdicts] == [True, True]
    assert [one.held is not None for one in verdicts] == [True, False]


def test_a_refund_gives_back_what_a_check_charged_and_a_retry_pays_again(make: Desks) -> None:
    once = Idempotency(600 * SECOND)
    desk = make(rule("pay", idempotency=once), rule("other", HUNDRED, TEN))
    verdict = desk.check(ask(idempotency_key="k"), cost=5)
    assert left(desk) == {"pay": 95, "other": 5}
    desk.refund(verdict)
    assert left(desk) == {"pay": 100, "other": 10}
    again = desk.check(ask(idempotency_key="k"), cost=5)
    assert (again.allowed, again.is_replay) == (True, False)
    assert left(desk) == {"pay": 95, "other": 5}


def test_a_refunded_replay_leaves_what_the_first_request_paid(make: Desks) -> None:
    desk = make(rule("pay", idempotency=Idempotency(600 * SECOND)), rule("other"))
    desk.check(ask(idempotency_key="k"), cost=5)
    desk.refund(desk.check(ask(idempotency_key="k"), cost=5))
    assert left(desk) == {"pay": 95, "other": 95}
    assert desk.check(ask(idempotency_key="k"), cost=5).is_replay


def test_a_refused_request_has_nothing_to_refund(make: Desks) -> None:
    desk = make(rule("wide"), rule("tight", TEN))
    desk.check(ask(), cost=10)
    desk.refund(desk.check(ask(), cost=1))
    desk.refund(desk.reserve(ask(), cost=1))
    assert left(desk) == {"wide": 90, "tight": 0}


def test_a_refund_leaves_the_counter_of_a_shadow_rule_that_would_have_denied(make: Desks) -> None:
    desk = make(rule("wide"), rule("trial", TEN, mode="shadow"))
    desk.check(ask(), cost=8)
    verdict = desk.check(ask(), cost=4)
    assert [one.rule.id for one in verdict.would_deny] == ["trial"]
    desk.refund(verdict)
    assert left(desk) == {"wide": 92, "trial": 2}


def test_a_refund_gives_back_what_is_reserved_and_what_was_charged_at_once(make: Desks) -> None:
    desk = make(rule("tokens"), rule("requests"), rule("trial", mode="shadow"))
    desk.check(ask(), cost=20)
    verdict = desk.reserve(ask(), cost={"tokens": 50, "trial": 50})
    assert left(desk) == {"tokens": 30, "requests": 79, "trial": 30}
    desk.refund(verdict)
    assert left(desk) == {"tokens": 80, "requests": 80, "trial": 80}
    lapsed = desk.reserve(ask(), cost={"tokens": 50}, ttl=1)
    desk.ledger.clock.advance(1)
    desk.refund(lapsed)
    assert left(desk)["tokens"] == 80


@pytest.mark.parametrize("verb", ["check", "reserve"])
def test_costs_go_by_rule_and_those_of_others_are_ignored(make: Desks, verb: str) -> None:
    desk = make(rule("a"), rule("b", cost=Cost(default=3)))
    asked = {"a": 20, "nobody": 1_000}
    verdict = desk.check(ask(), cost=asked) if verb == "check" else desk.reserve(ask(), cost=asked)
    assert [one.cost for one in verdict.rules] == [20, 3]
    assert left(desk) == {"a": 80, "b": 97}


def test_a_cost_of_nothing_is_admitted_and_may_turn_out_to_be_more(make: Desks) -> None:
    desk = make(rule("budget", TEN))
    desk.settle(desk.reserve(ask(), cost=0), 4)
    assert left(desk) == {"budget": 6}
    assert desk.check(ask(), cost=6)
    assert desk.reserve(ask(), cost=0)


def test_where_no_rule_applies_there_is_nothing_to_ask_or_to_settle(make: Desks) -> None:
    desk = make()
    verdict = desk.reserve(ask(), cost=5)
    assert (verdict.allowed, verdict.held, verdict.rules) == (True, None, ())
    assert desk.settle(verdict, 3)
    desk.refund(verdict)
    assert desk.ledger.asked == []


@pytest.mark.parametrize("amount", [-1, True, {"budget": -1}, {"budget": 1.5}, {"nobody": "3"}])
def test_amounts_that_are_none_are_refused_before_anything_is_asked(
    make: Desks, amount: Any
) -> None:
    desk = make(rule("budget"))
    for verb in (desk.reserve, desk.check, desk.peek):
        with pytest.raises(CostError):
            verb(ask(), cost=amount)
    assert desk.ledger.asked == []
    verdict = desk.reserve(ask(), cost=5)
    before = len(desk.ledger.asked)
    with pytest.raises(CostError):
        desk.settle(verdict, amount)
    assert len(desk.ledger.asked) == before


@pytest.mark.parametrize(
    ("policies", "allowed", "source"),
    [
        (("fail_open",), True, "fail_open"),
        (("fail_closed",), False, "fail_closed"),
        (("fail_open", "fail_closed"), False, "fail_closed"),
        (("local",), True, "local"),
    ],
)
def test_without_the_store_each_rule_does_as_it_says(
    make: Desks, policies: tuple[Any, ...], allowed: bool, source: str
) -> None:
    desk = make(*(rule(f"r{n}", on_failure=OnFailure(told)) for n, told in enumerate(policies)))
    desk.ledger.is_gone = True
    verdict = desk.reserve(ask(), cost=60)
    assert (verdict.allowed, verdict.source) == (allowed, source)
    assert (verdict.held is not None) == allowed
    again = desk.reserve(ask(), cost=60)
    assert not again.allowed, "each goes on limiting"


def test_what_was_let_through_without_the_store_is_charged_when_it_is_back(make: Desks) -> None:
    desk = make(rule("budget"), rule("slots", ONE_SLOT))
    desk.ledger.is_gone = True
    verdict = desk.reserve(ask(), cost=10)
    assert verdict.held is not None
    assert verdict.held.ids == ["budget"]
    desk.ledger.is_gone = False
    assert left(desk) == {"budget": 100, "slots": 1}
    desk.settle(verdict, 4)
    assert left(desk) == {"budget": 96, "slots": 1}


def test_to_settle_or_to_refund_without_the_store_raises_nothing(make: Desks) -> None:
    desk = make(rule("budget"), rule("known"))
    verdict = desk.reserve(ask(), cost={"budget": 10})
    desk.ledger.is_gone = True
    assert not desk.settle(verdict, 4)
    desk.refund(verdict)
    passed = desk.check(ask(), cost=1)
    desk.ledger.is_gone = False
    desk.refund(passed)
    assert left(desk) == {"budget": 90, "known": 99}, "it was not charged for what passed"
    desk.ledger.clock.advance(60)
    assert left(desk) == {"budget": 100, "known": 99}


@pytest.mark.parametrize("steps", range(1, 10))
def test_a_caller_that_goes_away_leaves_nothing_behind(steps: int) -> None:
    """However far its reservation has come when it is cancelled."""

    async def story() -> None:
        ledger = Ledger()
        rates = rule("tokens"), rule("requests"), rule("trial", mode="shadow")
        engine = AsyncRuleEngine(Policy((*rates, rule("slots", ONE_SLOT))), store=Awaited(ledger))
        cost = {"tokens": 50, "trial": 50}
        gone = asyncio.ensure_future(engine.reserve(ask(), cost=cost, ttl=3_600))
        for _ in range(steps):
            await asyncio.sleep(0)
        assert not gone.done()
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        await engine.aclose()
        assert len(ledger.asked) > 4, "it went on to the end, and was undone"
        seen = (await engine.peek(ask(), cost=0)).rules
        assert [one.decision.remaining for one in seen] == [100, 100, 100, 1]

    asyncio.run(story())
