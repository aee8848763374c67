"""What Headgate's own gateway says to the service, and is told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.policy.envoy_config.attributes import GATEWAY_DOMAIN, request_of
from headgate.policy.loader import read_policy
from headgate.policy.model import After, Cost, Rule
from headgate.responses import ResponseOptions
from headgate.service.rls import RlsOptions
from headgate.service.rls.rule_lines import GatewayEntries, cost_left, gateway_entries
from headgate.testing import ManualClock
from tests.support.rls_client import NOON, OK, OVER, Asker, DistantStore, codes_of, desc

RULES = """
version: 1
rules:
  - {id: calls, match: {endpoint: /v1/**}, key_by: api_key, limit: 10/hour}
  - id: tokens
    match: {endpoint: /v1/chat, method: POST}
    key_by: api_key
    limit: 100/hour
    cost: {default: 2, after: {header: x-tokens, per: 10, max: 50}}
"""
CLOSED = """
version: 1
rules: [{id: once, key_by: global, limit: 1/hour, on_store_failure: fail_closed}]
"""
ADA = ("method=POST", "path=/v1/chat?a=b", "host=h", "remote_address=10.0.0.1", "x-api-key=ada")


def asker(policy: str = RULES, **more: Any) -> Asker:
    return Asker(policy, **more)


def left(one: Asker) -> dict[str, int]:
    """What each rule has left for Ada, who is not charged for asking."""
    found = {}
    for rule in one.core.rules.in_force.policy.rules:
        others = ",".join({"calls", "tokens"} - {rule.id})
        found[rule.id] = one.left(GATEWAY_DOMAIN, f"headgate.decided={others}", *ADA)
    return found


def test_rules_that_the_gateway_decides_are_not_asked() -> None:
    one = asker()
    answer = one.ask(GATEWAY_DOMAIN, desc("headgate.decided=calls", *ADA))
    assert answer.statuses[0].current_limit.name == "tokens"
    assert left(one) == {"calls": 10, "tokens": 98}
    answer = one.ask(GATEWAY_DOMAIN, desc("headgate.decided=calls,tokens", *ADA))
    assert answer.overall_code == OK
    assert left(one) == {"calls": 10, "tokens": 98}


def test_a_report_is_charged_to_its_rule_alone_less_what_was_charged_before() -> None:
    one = asker()
    one.ask(GATEWAY_DOMAIN, desc(*ADA))
    assert left(one) == {"calls": 9, "tokens": 98}
    one.ask(GATEWAY_DOMAIN, desc("headgate.report=tokens", *ADA, hits=101))
    assert left(one) == {"calls": 9, "tokens": 98 - (11 - 2)}


@pytest.mark.parametrize(("said", "more"), [(0, 0), (20, 0), (21, 1), (10**9, 48), (2**63, 0)])
def test_a_report_is_rounded_up_and_bounded(said: int, more: int) -> None:
    """Envoy 1.40 makes 2**63 of `nan`."""
    one = asker()
    one.ask(GATEWAY_DOMAIN, desc("headgate.report=tokens", *ADA, hits=said))
    assert left(one) == {"calls": 10, "tokens": 100 - more}


def test_a_report_counts_in_full_beyond_the_limit_and_is_worked_off() -> None:
    for reports in ("auto", "never", "always"):
        one = asker(options=RlsOptions(reports=reports))
        for _ in range(3):
            one.ask(GATEWAY_DOMAIN, desc("headgate.report=tokens", *ADA, hits=490))
        answer = one.ask(GATEWAY_DOMAIN, desc(*ADA))
        assert answer.overall_code == OVER
        (status,) = answer.statuses
        assert status.duration_until_reset.seconds == 43 * 36  # 41 beyond, and 2


@pytest.mark.parametrize(
    "entries",
    [
        ("headgate.report=calls", *ADA),  # it is not told what requests have cost
        ("headgate.report=gone", *ADA),
        ("headgate.report=tokens", "path=/v1/chat", "method=GET", "x-api-key=ada"),
        ("headgate.report=tokens", "path=/v1/other", "method=POST", "x-api-key=ada"),
        ("headgate.report=tokens", "headgate.refused=limit", *ADA),
    ],
)
def test_other_reports_are_not_charged(entries: tuple[str, ...]) -> None:
    one = asker()
    assert one.code(GATEWAY_DOMAIN, desc(*entries, hits=400)) == OK
    assert left(one) == {"calls": 10, "tokens": 100}


def test_a_report_without_an_amount_is_none() -> None:
    one = asker()
    one.ask(GATEWAY_DOMAIN, desc("headgate.report=tokens", *ADA), hits=400)
    assert left(one) == {"calls": 10, "tokens": 100}


def test_reports_of_several_rules_come_together() -> None:
    more = (
        RULES + "  - {id: bytes, key_by: global, limit: 100/hour, cost: {after: {bytes: true}}}\n"
    )
    one = asker(more)
    reports = [desc(f"headgate.report={rule}", *ADA, hits=41) for rule in ("tokens", "bytes")]
    answer = one.ask(GATEWAY_DOMAIN, *reports)
    assert codes_of(answer) == [OK, OK]
    assert [status.limit_remaining for status in answer.statuses] == [97, 60]


def test_the_same_report_again_is_charged_again() -> None:
    """What is remembered of a call is how to ask, not what came of it, and never a take."""
    one = asker()
    for _ in range(5):
        assert one.code(GATEWAY_DOMAIN, desc("headgate.report=tokens", *ADA, hits=100)) == OK
    assert left(one)["tokens"] == 100 - 5 * 8
    for _ in range(5):
        one.ask(GATEWAY_DOMAIN, desc("headgate.report=tokens", *ADA, hits=490))
    assert one.code(GATEWAY_DOMAIN, desc(*ADA)) == OVER


def test_in_other_domains_the_words_are_ordinary_entries() -> None:
    one = asker()
    one.ask("edge", desc("headgate.decided=calls,tokens", *ADA))
    one.ask("edge", desc("headgate.report=tokens", *ADA))
    assert left(one) == {"calls": 8, "tokens": 96}
    entries = (("headgate.report", "x"), ("path", "/"))
    assert gateway_entries("edge", entries) == GatewayEntries(entries)
    assert request_of("edge", entries).header("headgate.report") == "x"


def test_rules_do_not_see_the_words() -> None:
    policy = """
version: 1
rules:
  - {id: odd, match: {attributes: {headgate.decided: true}}, key_by: global, limit: 1/hour}
  - {id: odder, match: {headers: {headgate.decided: true}}, key_by: global, limit: 1/hour}
  - {id: shape, match: {attributes: {descriptor: path}}, key_by: global, limit: 5/hour}
"""
    one = asker(policy)
    answer = one.ask(GATEWAY_DOMAIN, desc("headgate.decided=x", "path=/"))
    assert answer.statuses[0].current_limit.name == "shape"
    assert answer.statuses[0].limit_remaining == 4


def test_a_rule_in_shadow_has_no_debt_beyond_the_request_that_it_let_in() -> None:
    """What it would have refused would have cost nothing."""
    trial = RULES.replace("limit: 100/hour", "limit: 100/hour\n    mode: shadow")
    one = asker(trial)
    for _ in range(50):
        one.ask(GATEWAY_DOMAIN, desc("headgate.report=tokens", *ADA, hits=490))
    one.core.rules.replace(read_policy(RULES))
    answer = one.ask(GATEWAY_DOMAIN, desc("headgate.decided=calls", *ADA))
    assert answer.overall_code == OVER
    assert answer.statuses[0].duration_until_reset.seconds == 43 * 36


def test_what_is_reported_while_the_store_is_gone_is_answered() -> None:
    clock = ManualClock(NOON)
    store = DistantStore(clock)
    one = asker(store=store, clock=clock)
    store.is_gone = True
    assert one.code(GATEWAY_DOMAIN, desc("headgate.report=tokens", *ADA, hits=490)) == OK


def why(answer: Any) -> str:
    return str(answer.dynamic_metadata.fields["headgate.refused"].string_value)


def test_a_refusal_says_why_where_only_the_gateway_hears_it() -> None:
    one = asker("version: 1\nrules: [{id: once, key_by: global, limit: 1/hour}]\n")
    passed = one.ask(GATEWAY_DOMAIN, desc(*ADA))
    refused = one.ask(GATEWAY_DOMAIN, desc(*ADA))
    elsewhere = one.ask("edge", desc(*ADA))
    assert not passed.HasField("dynamic_metadata")
    assert why(refused) == "limit"
    assert elsewhere.overall_code == OVER
    assert not elsewhere.HasField("dynamic_metadata")


@pytest.mark.parametrize("metadata", [False, True])
def test_so_does_a_refusal_for_want_of_a_store(metadata: bool) -> None:
    clock = ManualClock(NOON)
    store = DistantStore(clock)
    one = asker(CLOSED, store=store, clock=clock, options=RlsOptions(metadata=metadata))
    store.is_gone = True
    answer = one.ask(GATEWAY_DOMAIN, desc(*ADA))
    assert (answer.overall_code, why(answer)) == (OVER, "outage")
    assert ("domain" in answer.dynamic_metadata.fields) == metadata


def test_who_wants_429_for_outages_gets_it() -> None:
    clock = ManualClock(NOON)
    store = DistantStore(clock)
    one = asker(CLOSED, store=store, clock=clock, answers=ResponseOptions(outage_status=429))
    store.is_gone = True
    assert why(one.ask(GATEWAY_DOMAIN, desc(*ADA))) == "limit"


words = st.sampled_from(["headgate.decided", "headgate.report", "headgate.refused", "path", "a"])


@given(st.lists(st.tuples(words, st.text(max_size=5)), max_size=6).map(tuple))
@example((("headgate.decided", "a,b"), ("path", "/")))
def test_words_are_taken_out_and_all_else_stays_in_its_order(
    entries: tuple[tuple[str, str], ...],
) -> None:
    spoken = gateway_entries(GATEWAY_DOMAIN, entries)
    assert spoken.entries == tuple(one for one in entries if not one[0].startswith("headgate."))
    keys = [key for key, _ in entries]
    assert (spoken.report is not None) == ("headgate.report" in keys)
    assert spoken.is_denied == ("headgate.refused" in keys)


@given(
    st.integers(0, 2**32),
    st.integers(0, 100),
    st.integers(1, 1000),
    st.one_of(st.none(), st.integers(1, 1000)),
)
def test_what_is_left_to_charge_makes_up_the_whole(
    reported: int, admitted: int, per: int, most: int | None
) -> None:
    rule = read_policy("version: 1\nrules: [{id: r, key_by: ip, limit: 1/s}]\n").rules[0]
    cost = Cost(after=After("x", per, most))
    told = Rule(rule.id, rule.match, rule.key_by, rule.limits, cost=cost)
    more = cost_left(told, reported, admitted)
    units = sum(1 for _ in range(0, min(reported, per * 2000), per))
    whole = units if most is None else min(units, most)
    if reported <= per * 2000:
        assert max(admitted, whole) == admitted + more
    assert cost_left(rule, reported, admitted) == 0
