"""Rules about calls of language models: their costs, prices and limits in dollars."""

from __future__ import annotations

import pytest

from headgate.engine.request import Request
from headgate.engine.use_cases import Engine
from headgate.llm.usage import Usage
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.loader import (
    examine_policy,
    policy_to_data,
    read_policy,
    read_policy_data,
)
from headgate.runtime.drivers import drive
from headgate.stores.memory import MemoryStore
from headgate.testing import ManualClock

RULES = """
version: 1
prices:
  gpt-4o*: {input: 2.50, cached: 1.25, output: 10}
  "*": {input: 15, output: 75}
rules:
  - id: tokens
    match: {endpoint: /v1/chat/completions, model: gpt-*}
    key_by: tenant
    limit: 100000/minute
    cost: {llm: tokens}
  - id: spend
    key_by: tenant
    limit: 50 usd/day
    cost: {llm: spend}
  - {id: requests, key_by: tenant, limit: 60/minute}
"""
CALL = {"llm.model": "gpt-4o-mini", "llm.prompt_bytes": "401", "llm.output_tokens": "100"}


def request(attributes: dict[str, str] | None = None, method: str = "POST") -> Request:
    headers = (("x-tenant-id", "ada"),)
    path = "/v1/chat/completions"
    return Request(method, path, headers=headers, attributes=attributes or {})


def costs(policy: CompiledPolicy, asked: Request) -> dict[str, int]:
    return {one.rule.id: one.cost for one in policy.plan(asked).rules}


@pytest.fixture
def policy() -> CompiledPolicy:
    return CompiledPolicy(read_policy(RULES))


def test_a_call_costs_the_estimate_of_its_prompt_and_its_output(policy: CompiledPolicy) -> None:
    micro_usd = 101 * 2.5 + 100 * 10  # rounded up once
    assert costs(policy, request(CALL)) == {"tokens": 201, "spend": 1253, "requests": 1}
    assert micro_usd == 1252.5


def test_costs_by_usage_are_open_until_the_end_of_the_call(policy: CompiledPolicy) -> None:
    plan = policy.plan(request(CALL))
    assert plan.open == {"tokens", "spend"}
    assert not plan.is_plain
    assert not policy.plan(request(method="GET")).open


def test_the_final_cost_is_that_of_the_usage(policy: CompiledPolicy) -> None:
    usage = Usage(input_tokens=100, output_tokens=10, cached_tokens=40)
    rules = {one.rule.id: one.rule for one in policy.plan(request(CALL)).rules}
    final = rules["tokens"].final_cost, rules["spend"].final_cost
    assert final[0] is not None
    assert final[1] is not None
    assert final[0](usage, "gpt-4o") == 110
    assert final[1](usage, "gpt-4o") == 60 * 2.5 + 40 * 1.25 + 10 * 10
    assert rules["requests"].final_cost is None


def test_a_call_without_a_bound_reserves_the_default_output(policy: CompiledPolicy) -> None:
    assert costs(policy, request({**CALL, "llm.output_tokens": "x"}))["tokens"] == 101 + 4096
    assert costs(policy, request({"llm.prompt_bytes": "8"}))["tokens"] == 2 + 4096


def test_several_completions_reserve_their_output_each(policy: CompiledPolicy) -> None:
    call = {"llm.model": "gpt-4o", "llm.prompt_bytes": "0", "llm.completions": "3"}
    assert costs(policy, request(call))["tokens"] == 3 * 4096


def test_a_request_without_a_body_is_no_call(policy: CompiledPolicy) -> None:
    assert costs(policy, request(method="GET")) == {"spend": 1, "requests": 1}
    assert not policy.reads_model(request(method="GET"))
    assert policy.reads_model(request())


def test_a_rule_for_models_fits_their_names_in_any_case_and_unknown_ones(
    policy: CompiledPolicy,
) -> None:
    assert "tokens" in costs(policy, request({**CALL, "llm.model": "gpt-5"}))
    assert "tokens" not in costs(policy, request({**CALL, "llm.model": "claude-opus"}))
    assert "tokens" in costs(policy, request({"llm.prompt_bytes": "400"}))


def test_an_unknown_model_has_the_highest_prices() -> None:
    text = RULES.replace('  "*": {input: 15, output: 75}\n', "  tiny: {input: 5, output: 1}\n")
    compiled = CompiledPolicy(read_policy(text))
    known = costs(compiled, request({**CALL, "llm.model": "tiny"}))["spend"]
    unknown = costs(compiled, request({**CALL, "llm.model": "invented"}))["spend"]
    assert (known, unknown) == (101 * 5 + 100, 101 * 5 + 100 * 10)


def test_equal_calls_share_no_plan_of_another_cost(policy: CompiledPolicy) -> None:
    for name in CALL:
        other = {**CALL, name: CALL[name] + "0"}
        fresh = CompiledPolicy(policy.policy)
        costs(policy, request(CALL))
        assert costs(policy, request(other)) == costs(fresh, request(other))


def test_a_policy_with_prices_and_dollars_is_written_as_it_was() -> None:
    policy = read_policy(RULES)
    data = policy_to_data(policy)
    assert data["prices"]["gpt-4o*"] == {"input": 2.5, "cached": 1.25, "output": 10}
    assert data["rules"][1]["limits"] == ["50 usd/d"]
    assert data["rules"][1]["cost"] == {"default": 1, "llm": "spend"}
    assert read_policy_data(data) == policy


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("llm: tokens", "llm: tokns"), "did you mean 'tokens'?"),
        (("llm: tokens", "llm: tokens, header: x-cost, max: 5"), "llm and header exclude"),
        (("100000/minute", "5 usd/minute"), "a limit in usd needs a cost in usd"),
        (("50 usd/day", "50/day"), "counts millionths of a dollar"),
        (("input: 2.50", "input: -1"), "expected an amount in dollars"),
        (("input: 2.50", "input: 0.0000001"), "at most 6 decimals"),
        (("input: 2.50, ", ""), "missing; expected an amount in dollars"),
        (("  gpt-4o*:", "  GPT-4O*: {input: 1, output: 1}\n  gpt-4o*:"), "is given twice"),
    ],
)
def test_mistakes_are_reported_with_their_place(change: tuple[str, str], problem: str) -> None:
    found = examine_policy(RULES.replace(*change))
    assert [one for one in found.problems if problem in str(one)], found.problems
    assert all(one.line for one in found.problems)


def test_a_log_of_calls_is_no_larger_for_what_they_cost() -> None:
    strict = RULES.replace("50 usd/day", "50 usd/day strict")
    assert examine_policy(strict).problems == ()


def test_spend_needs_prices() -> None:
    text = RULES[: RULES.index("prices:")] + RULES[RULES.index("rules:") :]
    (problem,) = examine_policy(text).problems
    assert "the policy has no prices, and the rule counts spend" in str(problem)


def test_a_call_that_is_never_settled_is_charged_when_its_hold_expires() -> None:
    clock = ManualClock(3_600)
    text = RULES.replace("100000/minute", "1000/hour fixed_window")
    compiled = CompiledPolicy(read_policy(text))
    plan = compiled.plan(request(CALL))
    engine = Engine(MemoryStore(clock=clock))
    assert drive(engine.reserve(plan, "a call", plan.rules[0].rule.hold_ns or 0)).allowed
    clock.advance(600)
    peeked = drive(engine.peek(compiled.plan(request({**CALL, "llm.output_tokens": "0"}))))
    assert peeked.decisions[0] is not None
    assert peeked.decisions[0].remaining == 1000 - 201
    drive(engine.closing())
