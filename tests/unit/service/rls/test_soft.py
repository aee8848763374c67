"""Rules for when there is more demand than capacity, as far as Envoy can keep them."""

from __future__ import annotations

import json
import logging
from fractions import Fraction

import pytest

from headgate.policy.envoy_config.attributes import GATEWAY_DOMAIN
from tests.support.rls_client import OK, OVER, Asker, DistantStore, desc, headers_of

QUEUE = "version: 1\nrules: [{id: exports, key_by: global, shape: {rate: 2/s, queue: 3}%s}]\n"
SOFT = """
version: 1
pressure: {latency: 500ms}
rules:
  - {id: soft, key_by: global, limit: 10/minute, adaptive: {floor: 20%}}
"""


@pytest.mark.parametrize("is_distant", [False, True])
def test_a_queue_counts_and_delays_nothing(is_distant: bool) -> None:
    asker = Asker(QUEUE % "")
    if is_distant:
        asker = Asker(QUEUE % "", store=DistantStore(asker.clock), clock=asker.clock)
    answers = [asker.ask("edge", desc("a=b")) for _ in range(5)]
    assert [int(one.overall_code) for one in answers] == [OK] * 4 + [OVER]
    assert [one.statuses[0].limit_remaining for one in answers] == [3, 2, 1, 0, 0]
    for answer in answers:
        assert not any(name.startswith("headgate-") for name in headers_of(answer))
    assert headers_of(answers[1])["ratelimit"] == '"exports";r=2;t=1'
    assert headers_of(answers[1])["ratelimit-policy"] == '"exports";q=4;w=2;hg-queue=3'
    asker.clock.advance(0.5)
    assert asker.code("edge", desc("a=b")) == OK
    assert asker.code("edge", desc("a=b")) == OVER


def test_that_nothing_is_delayed_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    asker = Asker(QUEUE % "")
    with caplog.at_level(logging.WARNING, "headgate.service.rls"):
        for user in "abc":
            asker.ask("edge", desc(f"user={user}"))
    (record,) = caplog.records
    assert "'exports': its queue only counts" in record.getMessage()


def test_a_queue_in_shadow_refuses_nothing() -> None:
    asker = Asker(QUEUE % ", mode: shadow")
    assert [asker.code("edge", desc("a=b")) for _ in range(6)] == [OK] * 6


def test_rules_by_which_requests_take_turns_are_passed_by() -> None:
    asker = Asker("version: 1\nrules: [{id: turns, key_by: global, fair: {slots: 1}}]\n")
    assert [asker.code("edge", desc("a=b")) for _ in range(3)] == [OK] * 3


@pytest.mark.parametrize(("domain", "status"), [("edge", "429"), (GATEWAY_DOMAIN, "503")])
def test_a_lowered_limit_sheds_and_calls_known_before_are_read_anew(
    domain: str, status: str
) -> None:
    asker = Asker(SOFT)
    entry = desc("path=/a", "method=GET")
    assert asker.code(domain, entry) == OK
    asker.core.rules.in_force.scale.factor = Fraction(1, 10)  # so to its floor: two a minute
    assert asker.code(domain, entry) == OK
    answer = asker.ask(domain, entry)
    assert answer.overall_code == OVER
    assert json.loads(answer.raw_body)["error"] == "temporarily_overloaded"
    assert int(headers_of(answer)["retry-after"]) >= 1
    is_told = answer.dynamic_metadata.fields["headgate.refused"].string_value
    assert is_told == ("outage" if status == "503" else "")
    asker.core.rules.in_force.scale.factor = Fraction(1)
    assert asker.code(domain, entry) == OK
