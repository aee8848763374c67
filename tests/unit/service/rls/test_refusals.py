"""What a client gets that is refused: the same as over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headgate.engine.request import Request
from headgate.responses import Answer, ResponseOptions, RuleAnswer, response_for
from headgate.service.rls import RlsOptions
from headgate.testing import ManualClock
from tests.support.rls_client import NOON, OVER, Asker, DistantStore, desc, headers_of

ONCE = "version: 1\nrules: [{id: once, key_by: global, limit: 1/minute%s}]\n"
ENVOY = """
domain: legacy
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 0}}
"""


def second(asker: Asker, domain: str = "edge", entry: str = "a=b") -> Any:
    """The answer to the same request again."""
    asker.ask(domain, desc(entry))
    return asker.ask(domain, desc(entry))


@pytest.mark.parametrize("problem", [False, True])
def test_a_refusal_has_the_body_and_the_headers_of_one_over_http(problem: bool) -> None:
    options = ResponseOptions(problem=problem)
    asker = Asker(ONCE % "", answers=options)
    answer = second(asker)
    (decision,) = [one.decision for one in _peeked(asker)]
    told = Answer(allowed=False, rules=(RuleAnswer("once", decision),))
    made = response_for(told, now_ns=asker.clock(), options=options)
    assert answer.raw_body == made.body
    assert headers_of(answer) == {name.lower(): value for name, value in made.headers}
    kind = "application/problem+json" if problem else "application/json"
    assert headers_of(answer)["content-type"] == kind
    assert json.loads(answer.raw_body)["retry_after"] == 60


def _peeked(asker: Asker) -> Any:
    running = asker.core.rules.peek(Request())
    try:
        running.send(None)
    except StopIteration as done:
        return done.value.rules
    raise AssertionError("the store waits")


def test_what_passes_has_no_body() -> None:
    answer = Asker(ONCE % "").ask("edge", desc("a=b"))
    assert not answer.raw_body
    assert "content-type" not in headers_of(answer)


def test_without_headers_a_denial_has_no_body_either() -> None:
    answer = second(Asker(ONCE % "", options=RlsOptions(headers=False)))
    assert (answer.overall_code, headers_of(answer), answer.raw_body) == (OVER, {}, b"")


def test_limits_of_a_configuration_are_refused_with_a_body_too() -> None:
    asker = Asker(envoy=ENVOY)
    assert json.loads(second(asker, "legacy").raw_body)["limit"] == "legacy.a"
    closed = asker.ask("legacy", desc("b=c"))
    assert closed.overall_code == OVER
    assert json.loads(closed.raw_body)["error"] == "rate_limit_exceeded"


@pytest.mark.parametrize(("domain", "status"), [("edge", 429), ("headgate", 503)])
def test_a_refusal_for_want_of_a_store_says_so_and_the_status_that_it_will_have(
    domain: str, status: int
) -> None:
    """Envoy has one status for all refusals, which only our gateway changes."""
    clock = ManualClock(NOON)
    store = DistantStore(clock)
    store.is_gone = True
    closed = ONCE % ", on_store_failure: fail_closed"
    plain = Asker(closed, store=store, clock=clock).ask(domain, desc("a=b"))
    assert json.loads(plain.raw_body)["error"] == "temporarily_unavailable"
    assert "retry-after" in headers_of(plain)
    answers = ResponseOptions(problem=True)
    problem = Asker(closed, store=store, clock=clock, answers=answers).ask(domain, desc("a=b"))
    assert json.loads(problem.raw_body)["status"] == status
