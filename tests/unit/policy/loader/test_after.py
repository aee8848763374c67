"""Costs that are known afterwards, and how a gateway decides: what is read, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headgate.policy.loader import examine_policy
from headgate.policy.model import After, Cost, EndpointCost, Rule

if TYPE_CHECKING:
    from headgate.policy.problems import Problem

CONCURRENT = "{algorithm: concurrency, limit: 5, ttl: 30s}"


def read(fields: str, limits: str = "100/s") -> tuple[Rule | None, tuple[Problem, ...]]:
    text = f"{{id: a, key_by: ip, limits: {limits}, {fields}}}"
    examined = examine_policy(f"version: 1\nrules: [{text}]\n")
    return (examined.policy.rules[0] if examined.policy else None), examined.problems


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("{after: {header: X-Tokens}}", Cost(after=After("x-tokens"))),
        ("{after: {bytes: true}}", Cost(after=After(by_bytes=True))),
        (
            "{default: 5, after: {bytes: true, per: 1024}}",
            Cost(5, after=After(by_bytes=True, per=1024)),
        ),
        ("{after: {header: x, per: 1_000, max: 50}}", Cost(after=After("x", 1000, 50))),
        (
            "{endpoints: {/chat: 3}, after: {header: x}}",
            Cost(endpoints=(EndpointCost("/chat", 3),), after=After("x")),
        ),
    ],
)
def test_a_cost_known_afterwards_is_read(written: str, meant: Cost) -> None:
    rule, problems = read(f"cost: {written}")
    assert problems == ()
    assert rule is not None
    assert rule.cost == meant


@pytest.mark.parametrize(
    ("written", "field", "message", "hint"),
    [
        ("{after: 5}", "after", "found 5, expected the cost that is charged afterwards", ""),
        ("{after: {}}", "after", "found none, expected exactly one of header, bytes", ""),
        ("{after: {per: 5}}", "after", "found none, expected exactly one of header", ""),
        (
            "{after: {header: x, bytes: true}}",
            "after",
            "found header and bytes, expected exactly one of",
            "",
        ),
        ("{after: {byte: true}}", "after.byte", "unknown field", "did you mean 'bytes'?"),
        (
            "{after: {bytes: false}}",
            "after.bytes",
            "found false, expected true",
            "leave it out instead",
        ),
        ("{after: {bytes: 5}}", "after.bytes", "found 5, expected true or false", ""),
        ("{after: {header: a b}}", "after.header", "'a b' is not the name of a header", ""),
        (
            "{after: {header: x, per: 0}}",
            "after.per",
            "found 0, expected a whole number from 1",
            "",
        ),
        (
            "{after: {header: x, max: 1.5}}",
            "after.max",
            "found 1.5, expected a whole number from 1",
            "",
        ),
        ("{aftr: {bytes: true}}", "aftr", "unknown field", "did you mean 'after'?"),
        (
            "{default: 0, after: {bytes: true}}",
            "default",
            "found 0; with after a request costs at least 1 in advance",
            "",
        ),
        (
            "{endpoints: {GET /x: 0}, after: {bytes: true}}",
            "endpoints",
            "found 0 for 'GET /x'; with after a request costs at least 1 in advance",
            "",
        ),
        (
            "{header: x-cost, max: 5, after: {bytes: true}}",
            "header",
            "header and after exclude each other: a request with a cost of 0",
            "give the cost of being allowed with default or endpoints",
        ),
        (
            "{max: 5, after: {bytes: true}}",
            "max",
            "max needs header, which is missing",
            "the final cost is bounded by max in after",
        ),
    ],
)
def test_a_wrong_cost_afterwards_is_told_once_and_where(
    written: str, field: str, message: str, hint: str
) -> None:
    rule, (problem,) = read(f"cost: {written}")
    assert rule is None
    assert (problem.severity, problem.field) == ("error", f"cost.{field}")
    assert (problem.message[: len(message)], problem.hint) == (message, hint)


def test_slots_alone_cannot_be_charged_afterwards() -> None:
    rule, (problem,) = read("cost: {after: {bytes: true}}", limits=f"[{CONCURRENT}]")
    assert rule is None
    assert problem.message.startswith("nothing can be charged afterwards: the rule has slots only")


@pytest.mark.parametrize(
    "limits", [f"[{CONCURRENT}, 9/s]", f"{{free: {CONCURRENT}, default: 9/s}}"]
)
def test_slots_beside_a_rate_may_be(limits: str) -> None:
    rule, problems = read("cost: {after: {bytes: true}}", limits=limits)
    assert rule is not None, problems


@pytest.mark.parametrize(("most", "is_warned"), [(4, True), (5, True), (6, False)])
def test_a_bound_that_leaves_nothing_to_charge_is_warned_of(most: int, is_warned: bool) -> None:
    written = f"{{default: 5, endpoints: {{/x: 7}}, after: {{bytes: true, max: {most}}}}}"
    rule, problems = read(f"cost: {written}")
    assert rule is not None
    told = [one.message for one in problems]
    assert bool(told) == is_warned
    assert all(one.startswith("nothing is ever charged afterwards: at most") for one in told)


@pytest.mark.parametrize("way", ["exact", "quota", "local"])
def test_every_way_to_decide_is_read(way: str) -> None:
    rule, problems = read(f"decide: {way}")
    assert rule is not None, problems
    assert rule.decide == way


def test_a_rule_that_does_not_say_is_decided_as_the_gateway_decides_otherwise() -> None:
    rule, _ = read("headers: on")
    assert rule is not None
    assert rule.decide is None


@pytest.mark.parametrize(
    ("written", "message", "hint"),
    [
        ("quotas", "found 'quotas'", "did you mean 'quota'?"),
        ("rls", "found 'rls'", "expected one of exact, quota, local"),
        ("true", "found true, expected one of exact, quota, local", ""),
        ("", "found nothing, expected one of exact, quota, local", ""),
    ],
)
def test_no_other_way_to_decide_is_known(written: str, message: str, hint: str) -> None:
    rule, (problem,) = read(f"decide: {written}")
    assert rule is None
    assert (problem.field, problem.message, problem.hint) == ("decide", message, hint)
