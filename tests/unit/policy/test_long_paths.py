"""A path that is longer than what rules examine is denied with 414, before any rule examines it."""

from __future__ import annotations

import pytest

from headgate.engine.request import Request
from headgate.engine.verdict import answer_of
from headgate.integrations.exemptions import Exemptions
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.explain import Explanation
from headgate.policy.loader import read_policy
from headgate.policy.path import LONGEST
from headgate.responses import ResponseOptions, grpc_status, response_for
from headgate.rule_engine import RuleEngine
from headgate.testing import ManualClock

POLICY = read_policy(
    """
version: 1
priority: [{match: {endpoint: "/x/**"}, class: critical}]
rules:
  - {id: api, match: {endpoint: "/api/**"}, key_by: [ip, endpoint], limit: 2/minute}
"""
)
LONG = "/other/" + "x" * (LONGEST - 6)
LONGEST_ALLOWED = LONG[:-1]


def engine() -> RuleEngine:
    return RuleEngine(POLICY, clock=ManualClock(1_000.0))


def test_a_long_path_is_denied_whatever_it_is() -> None:
    one = engine()
    assert one.check(Request(path=LONGEST_ALLOWED))
    denied = one.check(Request(path=LONG))
    assert not denied
    assert denied.retry_after is None
    assert denied.source == "path"
    assert not one.peek(Request(path=LONG))
    assert not one.reserve(Request(path=LONG), cost=1)


def test_its_response_is_414_without_a_time_to_retry() -> None:
    answer = answer_of(engine().check(Request(path=LONG)))
    for options in (ResponseOptions(), ResponseOptions(problem=True, jitter=1.0)):
        reply = response_for(answer, now_ns=0, options=options, accept=None)
        assert reply.status == 414
        assert b"The path of this request is too long" in reply.body
        assert not [name for name, _ in reply.headers if "retry" in name.lower()]
        assert not [name for name, _ in reply.headers if "ratelimit" in name.lower()]
    assert grpc_status(answer).code == 3


def test_other_rules_charge_nothing_for_it() -> None:
    one = engine()
    for _ in range(5):
        assert not one.check(Request(path="/api/" + "x" * LONGEST))
    assert one.check(Request(path="/api/a"))


def test_it_is_examined_for_nothing_else() -> None:
    compiled = CompiledPolicy(POLICY)
    long = Request(path="/x/" + "x" * LONGEST)
    assert compiled.priority_of(Request(path="/x/y")) == "critical"
    assert compiled.priority_of(long) == "default"
    assert compiled.matching(long) == ()
    exempt = Exemptions(["/x/**"])
    assert exempt.covers("/x/y")
    assert not exempt.covers(long.path)


@pytest.mark.parametrize("path", [LONG, "/api/" + "%61" * LONGEST])
def test_an_explanation_names_no_rule(path: str) -> None:
    verdict = engine().check(Request(path=path))
    explanation = Explanation(CompiledPolicy(POLICY), Request(path=path), verdict)
    assert explanation.applied() == []
