"""One rule alone, for a gateway that has seen to it that the rule matches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from headgate.engine.request import Request
from headgate.errors import CostError
from headgate.limits import Concurrency, FixedWindow
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.model import (
    Cost,
    EndpointCost,
    Idempotency,
    Identity,
    Match,
    Override,
    Policy,
    Rule,
)
from headgate.testing import ManualClock
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.engine.plan import RulePlan

TEN = FixedWindow(10, 60)
LOGIN = Rule(
    "login",
    Match(endpoints=("/login",), methods=("POST",)),
    ("ip",),
    {None: (TEN,)},
    cost=Cost(2, (EndpointCost("/search", 7),)),
)
HERE = Request("GET", "/search", peer="1.2.3.4")


def engine(*rules: Rule, **options: Any) -> CompiledPolicy:
    overrides = options.pop("overrides", ())
    identity = options.pop("identity", Identity())
    policy = Policy(rules, identity, 7, overrides)
    return CompiledPolicy(policy, clock=ManualClock(1_000), **options)


def only(one: CompiledPolicy, rule_id: str, request: Request, cost: int | None = None) -> RulePlan:
    plan = one.plan_of(rule_id, request, cost)
    assert (plan.revision, plan.lease, plan.open) == (7, None, frozenset())
    (found,) = plan.rules
    return found


def test_a_rule_is_planned_for_a_request_that_it_does_not_match() -> None:
    one = engine(LOGIN, replace(LOGIN, id="other"))
    assert one.plan(HERE).rules == ()
    planned = only(one, "login", HERE)
    assert (planned.rule.declared, planned.key, planned.cost) == (LOGIN, "ip=1.2.3.4", 7)


def test_it_is_planned_as_with_all_others_where_it_does_match() -> None:
    request = Request("POST", "/login", peer="2001:db8::1")
    one = engine(LOGIN, namespace="ours", salt=b"x")
    assert one.plan_of("login", request) == one.plan(request)


def test_a_cost_takes_the_place_of_what_the_rule_says() -> None:
    one = engine(LOGIN)
    assert only(one, "login", HERE, 5).cost == 5
    assert [check.cost for check in only(one, "login", HERE, 5).checks] == [5]
    with pytest.raises(CostError):
        one.plan_of("login", HERE, -1)


@pytest.mark.parametrize("rule_id", ["nobody", "", "Login"])
def test_a_rule_that_is_not_there_is_nothing_to_ask(rule_id: str) -> None:
    plan = engine(LOGIN).plan_of(rule_id, HERE)
    assert (plan.revision, plan.rules) == (7, ())


def test_a_rule_that_is_off_is_nothing_to_ask_and_a_shadow_is_one() -> None:
    assert engine(replace(LOGIN, mode="off")).plan_of("login", HERE).rules == ()
    plan = engine(replace(LOGIN, mode="shadow")).plan_of("login", HERE)
    assert [one.rule.id for one in plan.shadows] == ["login"]
    assert plan.deciding == ()


def test_a_rule_that_does_not_apply_to_the_caller_is_nothing_to_ask() -> None:
    tiers = replace(LOGIN, limits={"paid": (TEN,)})
    paid = replace(HERE, headers=(("x-tier", "paid"),))
    assert engine(tiers).plan_of("login", HERE).rules == ()
    assert only(engine(tiers), "login", paid).limits == (TEN,)
    nobody = replace(LOGIN, key_by=("user_id",))
    assert engine(nobody, identity=Identity(fallback="skip")).plan_of("login", HERE).rules == ()


def test_overrides_and_retries_are_as_ever() -> None:
    until_ns = 2_000 * SECOND
    blocked = engine(LOGIN, overrides=(Override("login", "ip=1.2.3.4", until_ns, block=True),))
    assert blocked.plan_of("login", HERE).is_denied
    more = engine(LOGIN, overrides=(Override("login", "ip=1.2.3.4", until_ns, extra=5),))
    assert only(more, "login", HERE).limits == (FixedWindow(15, 60),)
    retry = replace(HERE, headers=(("idempotency-key", "a"),))
    once = engine(replace(LOGIN, idempotency=Idempotency(SECOND)))
    assert only(once, "login", retry).marker is not None


def test_slots_are_planned_without_a_lease_so_that_none_can_be_taken() -> None:
    slots = Concurrency(5, 60)
    planned = only(engine(replace(LOGIN, limits={None: (TEN, slots)})), "login", HERE)
    assert [check.limit for check in planned.rates] == [TEN]
    assert [check.limit for check in planned.slots] == [slots]
