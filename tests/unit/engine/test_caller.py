"""All that limits a caller, looked at over the memory store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headgate.engine.request import Request
from headgate.limits import (
    GCRA,
    Concurrency,
    FixedWindow,
    LeakyBucket,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)
from headgate.policy.compiled import CompiledPolicy, Concern
from headgate.policy.model import (
    Cost,
    Idempotency,
    Identity,
    Match,
    Policy,
    Rule,
    compiled_rule,
)
from headgate.stores import MemoryStore
from headgate.stores.base import conclude
from headgate.stores.operations import Take, TakeEach
from headgate.testing import ManualClock
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.decision import Decision

TEN = FixedWindow(10, 60)
STATUS = Request(path="/rate_limit", peer="1.2.3.4", attributes={"route": "/rate_limit"})


def rule(name: str, *limits: Limit, **fields: Any) -> Rule:
    match = Match(**fields.pop("match", {}))
    by = fields.pop("key_by", ("ip",))
    return Rule(name, match, by, fields.pop("by_tier", {None: limits or (TEN,)}), **fields)


def concerns(*rules: Rule, request: Request = STATUS, **identity: Any) -> dict[str, Concern]:
    found = CompiledPolicy(Policy(rules, Identity(**identity))).concerning(request)
    assert all(each.plan is None or each.plan.rule is each.rule for each in found)
    return {each.rule.id: each for each in found}


def key(one: Rule, request: Request = STATUS) -> str | None:
    plan = concerns(one, request=request)[one.id].plan
    return None if plan is None else plan.key


def look(store: MemoryStore, engine: CompiledPolicy, request: Request = STATUS) -> list[Decision]:
    plans = [each.plan for each in engine.concerning(request) if each.plan is not None]
    takes = tuple(Take(plan.checks, consume=False) for plan in plans)
    replies = store.run(TakeEach(takes))
    return [
        conclude(take.checks, reply)
        for take, reply in zip(takes, replies, strict=True)
        if isinstance(reply, tuple)
    ]


def spend(
    store: MemoryStore, engine: CompiledPolicy, request: Request, lease: str | None = None
) -> None:
    operation = engine.plan(request, lease=lease).operation()
    assert operation is not None
    store.run(operation)


def test_every_rule_of_the_caller_is_told_in_the_order_of_the_policy() -> None:
    found = concerns(
        rule("login", match={"endpoints": ("/login",), "methods": ("POST",)}),
        rule("off", mode="off"),
        rule("shadow", mode="shadow"),
        rule("all"),
        rule("quiet", headers="off"),
        rule("secretive", headers="redacted"),
        rule("gold", match={"tiers": ("gold",)}),
    )
    assert list(found) == ["login", "all", "quiet", "secretive"]


def test_rules_that_do_not_apply_to_the_caller_are_not_told() -> None:
    found = concerns(
        rule("gold", by_tier={"gold": (TEN,)}),
        rule("known", key_by=("user_id",)),
        rule("known-by-endpoint", key_by=("user_id", "endpoint")),
        rule("any"),
        fallback="skip",
    )
    assert list(found) == ["any"]


def test_the_limits_are_those_of_the_callers_tier() -> None:
    two = FixedWindow(2, 60)
    tiers = {"gold": (TEN,), None: (two,)}
    told = rule("told", by_tier=tiers)
    untold = rule("untold", by_tier=tiers, key_by=("ip", "endpoint"))
    gold = Request(path="/rate_limit", headers=(("x-tier", "gold"),))
    assert [one.limits for one in concerns(told, untold).values()] == [(two,)] * 2
    assert [one.limits for one in concerns(told, untold, request=gold).values()] == [(TEN,)] * 2
    plan = concerns(told)["told"].plan
    assert plan is not None
    assert plan.limits == (two,)


def test_the_counters_are_those_of_the_requests_themselves() -> None:
    rules = (
        rule("plain", TEN, FixedWindow(99, 3600)),
        rule("path", match={"endpoints": ("/Login/",)}, key_by=("ip", "endpoint")),
        rule("both", match={"endpoints": ("/login",), "methods": ("POST",)},
             key_by=("method", "endpoint")),
        rule("method", match={"methods": ("POST", "post")}, key_by=("ip", "method")),
        rule("host", key_by=("host",)),
    )  # fmt: skip
    engine = CompiledPolicy(Policy(rules), namespace="here")
    asked = Request("POST", "/login", peer="1.2.3.4")
    real = {one.rule.id: one for one in engine.plan(asked).rules}
    found = {one.rule.id: one.plan for one in engine.concerning(STATUS)}
    assert found == real


@pytest.mark.parametrize(
    ("match", "by"),
    [
        ({}, ("ip", "endpoint")),
        ({"endpoints": ("/a", "/b")}, ("endpoint",)),
        ({"endpoints": ("/a/*",)}, ("endpoint",)),
        ({"endpoints": ("/a/**",), "methods": ("GET",)}, ("method", "endpoint")),
        ({"endpoints": ("/a",)}, ("method", "endpoint")),
        ({"endpoints": ("/a",), "methods": ("GET", "PUT")}, ("endpoint", "method")),
        ({"endpoints": ("/a",)}, ("method",)),
        ({"endpoints": ("/a",)}, ("ip", "attribute:route")),
    ],
)
def test_a_rule_with_several_counters_for_the_caller_is_told_without_figures(
    match: dict[str, Any], by: tuple[str, ...]
) -> None:
    one = rule("one", match=match, key_by=by)
    assert concerns(one) == {"one": Concern(compiled_rule(one), (TEN,), None)}


def test_a_rule_for_one_route_has_the_counter_of_that_route() -> None:
    match = {"attributes": (("route", ("/users/{id}",)),)}
    one = rule("one", match=match, key_by=("endpoint",))
    real = Request(path="/users/7", attributes={"route": "/users/{id}"})
    planned = CompiledPolicy(Policy((one,))).plan(real).rules[0]
    assert key(one) == planned.key
    assert key(one, Request(path="/rate_limit")) == planned.key


def test_neither_path_nor_method_of_the_status_page_are_in_any_key() -> None:
    rules = (
        rule("a", match={"endpoints": ("/a",), "methods": ("PUT",)}, key_by=("endpoint", "method")),
        rule("b"),
    )
    first, *others = (
        [one.plan for one in concerns(*rules, request=page).values()]
        for page in (Request("HEAD", "/y/z", peer="1.2.3.4"), Request(peer="1.2.3.4"), STATUS)
    )
    assert None not in first
    assert others == [first, first]


def test_a_look_costs_one_whatever_the_rule_says_and_is_no_retry() -> None:
    one = rule("one", cost=Cost(5, header="x-cost", most=9), idempotency=Idempotency(SECOND))
    request = Request(headers=(("idempotency-key", "k"), ("x-cost", "7")), peer="1.2.3.4")
    plan = concerns(one, request=request)["one"].plan
    assert plan is not None
    assert (plan.cost, [check.cost for check in plan.checks], plan.marker) == (1, [1], None)


LIMITS = (
    TokenBucket(3, 1),
    GCRA(rate=1, burst=3),
    LeakyBucket(3, 1),
    FixedWindow(3, 60),
    SlidingWindowLog(3, 60),
    SlidingWindowCounter(3, 60),
)


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.algorithm)
def test_a_look_tells_what_is_left_and_consumes_nothing(limit: Limit) -> None:
    store = MemoryStore(clock=ManualClock(1_200))
    match = {"endpoints": ("/login",)}
    engine = CompiledPolicy(Policy((rule("one", limit, match=match),)))
    login = Request("POST", "/login", peer="1.2.3.4")
    for used in range(3):
        for _ in range(2):
            (seen,) = look(store, engine)
            assert (seen.allowed, seen.remaining, seen.retry_after) == (True, 3 - used, 0.0)
            assert bool(seen.reset_after) == bool(used)
        spend(store, engine, login)
    (seen,) = look(store, engine)
    refused = conclude_one(store, engine, login)
    assert not refused.allowed
    assert seen == refused


def conclude_one(store: MemoryStore, engine: CompiledPolicy, request: Request) -> Decision:
    """What a real request is told, by a rule that is alone."""
    checks = engine.plan(request).rules[0].checks
    return conclude(checks, store.run(Take(checks)))


def test_a_limit_that_is_used_up_takes_nothing_from_what_is_told_of_others() -> None:
    store = MemoryStore(clock=ManualClock(1_200))
    match = {"endpoints": ("/login",)}
    engine = CompiledPolicy(
        Policy((rule("one", FixedWindow(1, 60), match=match), rule("all", TEN)))
    )
    spend(store, engine, Request(path="/login", peer="1.2.3.4"))
    assert [(seen.allowed, seen.remaining) for seen in look(store, engine)] == [
        (False, 0),
        (True, 9),
    ]
    other = Request(path="/rate_limit", peer="5.6.7.8")
    assert [seen.remaining for seen in look(store, engine, other)] == [1, 10]


def test_of_slots_a_look_tells_how_many_are_free() -> None:
    store = MemoryStore(clock=ManualClock(1_200))
    engine = CompiledPolicy(Policy((rule("slots", Concurrency(2, 30), cost=Cost(7)),)))
    told = []
    for lease in ("a", "b", None):
        told += [(seen.allowed, seen.remaining) for seen in look(store, engine)]
        if lease is not None:
            spend(store, engine, Request(path="/x", peer="1.2.3.4"), lease)
    assert told == [(True, 2), (True, 1), (False, 0)]
