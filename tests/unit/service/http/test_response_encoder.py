"""What is told quickly is what is told slowly."""

from __future__ import annotations

import asyncio
import gc
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.engine.request import Request
from headgate.responses import ResponseOptions
from headgate.service.http.check import LimitTemplate, ResponseEncoder
from headgate.stores.factory import unwrapped
from headgate.testing import ManualClock
from tests.support.http_app import START, FakeStore, core_of
from tests.support.verdict_json import verdict_json

LIMITS = (
    "3/minute",
    "100/s burst 7",
    "1000000/s burst 3",
    "5/minute sliding_window_log",
    "5/minute fixed_window",
    "7/hour sliding_window_counter",
    "9/minute; 100/hour",
    "10/minute gcra; 4/second fixed_window",
    "5/m leaky_bucket",
    "1/h",
)


@st.composite
def policies(draw: st.DrawFn) -> dict[str, Any]:
    rules = []
    for n in range(draw(st.integers(0, 4))):
        rule: dict[str, Any] = {
            "id": f"rule{n}",
            "key_by": "ip",
            "mode": draw(st.sampled_from(["enforce", "enforce", "shadow"])),
            "headers": draw(st.sampled_from(["on", "on", "brief", "off", "redacted"])),
            "on_store_failure": draw(st.sampled_from(["fail_open", "local"])),
        }
        if draw(st.integers(0, 5)) == 0:
            rule["shape"] = {"rate": "2/s", "queue": 3}
        elif draw(st.booleans()):
            rule |= {"algorithm": "concurrency", "limit": 3, "ttl": 30}
        else:
            rule["limit"] = draw(st.sampled_from(LIMITS))
        rules.append(rule)
    return {"version": 1, "rules": rules}


@given(
    policies(),
    st.lists(st.tuples(st.floats(0, 90), st.integers(0, 3)), min_size=1, max_size=4),
    st.booleans(),
)
def test_headers_and_json_are_those_of_the_long_way(
    policy: dict[str, Any], steps: list[tuple[float, int]], is_gone: bool
) -> None:
    clock = ManualClock(START)
    core = core_of(json.dumps(policy), clock=clock)
    store = unwrapped(core.rules.engine.store)
    assert isinstance(store, FakeStore)
    store.is_gone = is_gone
    encoder = ResponseEncoder(ResponseOptions(), core.clock)
    for wait, cost in steps:
        clock.advance(wait)
        asked = Request("GET", "/", peer="203.0.113.7")
        verdict = asyncio.run(core.rules.check(asked, cost=cost))
        assert encoder.text(verdict) == json.dumps(verdict_json(verdict))
        if verdict.allowed:
            assert encoder.lines(verdict) == encoder.slow_lines(verdict)


def test_what_is_held_is_told_as_slowly() -> None:
    core = core_of("version: 1\nrules: [{id: a, key_by: ip, limit: 1000/hour}]")
    asked = Request("GET", "/", peer="203.0.113.7")
    verdict = asyncio.run(core.rules.reserve(asked, cost=700, ttl=60))
    encoder = ResponseEncoder(ResponseOptions(), core.clock)
    assert (b"ratelimit", b'"a";r=300;t=1') in encoder.lines(verdict)
    assert encoder.lines(verdict) == encoder.slow_lines(verdict)


@pytest.mark.parametrize("quota", [10**15 - 1, 10**14])
def test_the_largest_quotas_are_told_as_slowly(quota: int) -> None:
    core = core_of(f"version: 1\nrules: [{{id: a, key_by: ip, limit: {quota}/hour}}]")
    verdict = asyncio.run(core.rules.check(Request("GET", "/", peer="203.0.113.7")))
    encoder = ResponseEncoder(ResponseOptions(), core.clock)
    assert encoder.lines(verdict) == encoder.slow_lines(verdict)


def test_what_is_remembered_of_a_rule_goes_when_there_is_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headgate.service.http.check.CACHED_LIMITS", 2)
    core = core_of(
        "version: 1\nrules: [{id: a, key_by: ip, limit: 9/s}, {id: b, key_by: ip, limit: 8/s}, "
        "{id: c, key_by: ip, limit: 7/s}]"
    )
    encoder = ResponseEncoder(ResponseOptions(), core.clock)
    for _ in range(3):
        verdict = asyncio.run(core.rules.check(Request("GET", "/", peer="203.0.113.7")))
        assert encoder.lines(verdict) == encoder.slow_lines(verdict)


def test_a_rule_that_took_over_the_limit_of_another_speaks_for_itself() -> None:
    core = core_of()
    encoder = ResponseEncoder(ResponseOptions(), core.clock)
    asked = Request("GET", "/api/a", peer="203.0.113.7")
    encoder.lines(asyncio.run(core.rules.check(asked)))
    policy = core.rules.in_force.policy
    core.rules.replace(replace(policy, rules=(replace(policy.rules[0], id="renamed"),)))
    verdict = asyncio.run(core.rules.check(asked))
    assert encoder.lines(verdict) == encoder.slow_lines(verdict)
    assert json.loads(encoder.text(verdict)) == verdict_json(verdict)


@pytest.mark.parametrize(
    "options",
    [
        ResponseOptions(x_ratelimit=False),
        ResponseOptions(ratelimit=False),
        ResponseOptions(draft03=True),
        ResponseOptions(bucket=True),
    ],
)
def test_other_families_of_headers_are_told_the_long_way(options: ResponseOptions) -> None:
    core = core_of()
    verdict = asyncio.run(core.rules.check(Request("GET", "/api/a", peer="203.0.113.7")))
    encoder = ResponseEncoder(options, core.clock)
    assert encoder.lines(verdict) == encoder.slow_lines(verdict)
    assert encoder.lines(verdict) != ResponseEncoder(ResponseOptions(), core.clock).lines(verdict)


def test_what_is_remembered_of_a_replaced_policy_goes_with_it() -> None:
    core = core_of()
    encoder = ResponseEncoder(ResponseOptions(), core.clock)
    asked = Request("GET", "/api/a", peer="203.0.113.7")
    before = asyncio.run(core.rules.check(asked)).plan.rules[0].rule
    encoder.text(asyncio.run(core.rules.check(asked)))
    policy = core.rules.in_force.policy
    core.rules.replace(replace(policy, rules=(replace(policy.rules[0], id="renamed"),)))
    encoder.text(asyncio.run(core.rules.check(asked)))
    assert not [one for one in gc.get_referrers(before) if isinstance(one, LimitTemplate)]
