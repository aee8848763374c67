"""What hits mean: checks of nothing, reports of what has happened, and how they are told apart."""

from __future__ import annotations

import pytest

from headgate.engine.calls import went_beyond
from headgate.limits import parse_limit
from headgate.service.rls import RlsOptions, descriptors
from headgate.service.rls.descriptors import Amounts
from headgate.service.rls.requests import Descriptor
from headgate.stores.memory import MemoryStore
from headgate.stores.operations import Charge, Check
from headgate.testing import ManualClock
from tests.support.rls_client import NOON, OK, OVER, Asker, codes_of, desc

RULES = """
version: 1
rules:
  - {id: tokens, match: {attributes: {user: true}}, key_by: "attribute:user", limit: 100/minute}
  - {id: requests, match: {attributes: {who: true}}, key_by: "attribute:who", limit: 3/minute}
"""
CONFIG = """
domain: edge
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 100}}
  - {key: who, rate_limit: {unit: minute, requests_per_unit: 3}}
"""


@pytest.fixture(params=["rules", "configuration"])
def asker(request: pytest.FixtureRequest) -> Asker:
    return Asker(RULES) if request.param == "rules" else Asker(envoy=CONFIG)


def check(asker: Asker) -> int:
    return asker.code("edge", desc("user=ada", hits=0))


def test_an_explicit_zero_consumes_nothing(asker: Asker) -> None:
    assert [check(asker) for _ in range(3)] == [OK] * 3
    assert asker.left("edge", "user=ada") == 100


def test_an_explicit_zero_is_denied_by_a_rule_when_nothing_is_left() -> None:
    asker = Asker(RULES)
    assert asker.code("edge", desc("user=ada"), hits=100) == OK
    assert check(asker) == OVER


def test_an_explicit_zero_is_denied_by_a_configured_limit_when_more_than_that_was_used() -> None:
    asker = Asker(envoy=CONFIG)
    service = desc("who=service_2", hits=0), desc("who=service_2", hits=1)
    for _ in range(4):  # as the token-quota script of envoyproxy/ratelimit does, with 3 a minute
        assert asker.code("edge", service[0]) == OK
        asker.ask("edge", service[1])
    assert asker.code("edge", service[0]) == OVER
    asker.clock.advance(60)
    assert asker.code("edge", service[0]) == OK


def test_without_a_check_of_zero_amounts_are_checks(asker: Asker) -> None:
    codes = [asker.code("edge", desc("user=ada", hits=hits)) for hits in (60, 60, 40)]
    assert codes == [OK, OVER, OK]


def test_after_a_check_of_zero_an_amount_is_a_report_and_counts_beyond_the_limit(
    asker: Asker,
) -> None:
    assert check(asker) == OK
    assert asker.code("edge", desc("user=ada", hits=60)) == OK
    assert check(asker) == OK
    beyond = asker.ask("edge", desc("user=ada", hits=150))  # 210 of 100
    assert beyond.overall_code == OVER
    assert beyond.statuses[0].limit_remaining == 0
    assert check(asker) == OVER
    asker.clock.advance(60)
    assert check(asker) == OVER  # 110 of 100: the debt is not worked off yet
    asker.clock.advance(60)
    assert check(asker) == OK


def test_a_call_that_was_a_check_is_a_report_once_a_check_of_zero_has_come(asker: Asker) -> None:
    some = desc("user=ada", hits=40)
    assert [asker.code("edge", some) for _ in range(4)] == [OK, OK, OVER, OVER]
    assert check(asker) == OK
    assert asker.code("edge", some) == OVER  # 120 of 100, in full
    assert check(asker) == OVER


def test_a_report_that_just_fills_the_limit_is_not_beyond_it(asker: Asker) -> None:
    check(asker)
    assert asker.code("edge", desc("user=ada", hits=100)) == OK
    assert asker.code("edge", desc("user=ada", hits=1)) == OVER
    assert check(asker) == OVER


def test_giving_back_is_never_denied_not_even_while_there_is_debt(asker: Asker) -> None:
    check(asker)
    asker.ask("edge", desc("user=ada", hits=150))
    answer = asker.ask("edge", desc("user=ada", hits=20, negative=True))
    assert (answer.overall_code, codes_of(answer)) == (OK, [OK])
    assert check(asker) == OVER
    asker.ask("edge", desc("user=ada", hits=31, negative=True))
    assert check(asker) == OK


def test_what_is_learnt_is_for_all_callers_of_a_limit_and_for_no_other_limit(asker: Asker) -> None:
    check(asker)
    assert asker.code("edge", desc("user=bob", hits=101)) == OVER
    assert asker.code("edge", desc("user=bob", hits=0)) == OVER
    assert [asker.code("edge", desc("who=x", hits=hits)) for hits in (2, 2, 1)] == [OK, OVER, OK]


def test_amounts_of_the_call_never_report(asker: Asker) -> None:
    check(asker)
    assert asker.code("edge", desc("user=ada"), hits=101) == OVER
    assert asker.left("edge", "user=ada") == 100


@pytest.mark.parametrize("source", [(RULES, None), ("version: 1\nrules: []\n", CONFIG)])
def test_reports_can_be_switched_on_and_off(source: tuple[str, str | None]) -> None:
    always = Asker(*source, RlsOptions(reports="always"))
    assert always.code("edge", desc("user=ada", hits=101)) == OVER
    assert always.left("edge", "user=ada") == 0
    never = Asker(*source, RlsOptions(reports="never"))
    assert check(never) == OK
    assert never.code("edge", desc("user=ada", hits=101)) == OVER
    assert never.left("edge", "user=ada") == 100


def test_a_check_of_zero_that_is_refused_charges_no_other_descriptor(asker: Asker) -> None:
    check(asker)
    assert asker.code("edge", desc("user=ada", hits=101)) == OVER
    answer = asker.ask("edge", desc("who=ada"), desc("user=ada", hits=0))
    assert answer.overall_code == OVER
    assert codes_of(answer) == [OK, OVER]
    assert asker.left("edge", "who=ada") == 3


def test_a_check_of_zero_beside_others_lets_them_be_charged(asker: Asker) -> None:
    both = (desc("user=ada", hits=0), desc("who=ada"))
    answers = [asker.ask("edge", *both) for _ in range(4)]
    assert [one.overall_code for one in answers] == [OK, OK, OK, OVER]
    assert [codes_of(one) for one in answers[2:]] == [[OK, OK], [OK, OVER]]
    assert [one.statuses[1].limit_remaining for one in answers] == [2, 1, 0, 0]


def test_a_report_beyond_the_limit_denies_its_call_and_nothing_else_is_charged(
    asker: Asker,
) -> None:
    assert check(asker) == OK
    both = (desc("user=ada", hits=500), desc("who=ada"))
    assert codes_of(asker.ask("edge", *both)) == [OVER, OK]
    assert asker.left("edge", "who=ada") == 3
    within = (desc("user=bob", hits=5), desc("who=ada"))
    assert asker.code("edge", *within) == OK
    assert asker.left("edge", "who=ada") == 2


def test_a_report_counts_though_another_descriptor_is_denied(asker: Asker) -> None:
    check(asker)
    asker.code("edge", desc("who=ada"), hits=3)
    answer = asker.ask("edge", desc("who=ada"), desc("user=ada", hits=10))
    assert codes_of(answer) == [OVER, OK]
    assert asker.left("edge", "user=ada") == 90


def test_a_limit_that_a_call_brings_has_two_phases_too() -> None:
    asker = Asker()
    brought = {"limit": (10, "HOUR")}
    for hits, code in ((0, OK), (25, OVER), (0, OVER)):
        assert asker.code("x", desc("a=b", hits=hits, limit=brought["limit"])) == code
    asker.clock.advance(3600)
    assert asker.code("x", desc("a=b", hits=0, limit=(10, "HOUR"))) == OVER


def test_what_is_learnt_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "MAX_TOPICS", 2)
    learnt = Amounts("auto")
    zero, some = Descriptor((), hits=0), Descriptor((), hits=5)
    for name in "abc":
        assert learnt.verb(zero, (name,)) == "look"
    assert [learnt.verb(some, (name,)) for name in "abc"] == ["take", "report", "report"]
    version = learnt.version
    learnt.verb(zero, ("c",))
    assert learnt.version == version
    learnt.verb(zero, ("a",))
    assert learnt.version > version


@pytest.mark.parametrize(
    "text",
    [
        "10/minute",
        "10/minute fixed_window",
        "10/minute sliding_window_log",
        "7/3s",
        "3/second gcra",
        "1/hour",
        "1/hour fixed_window",
    ],
)
@pytest.mark.parametrize("elapsed", [0, 0.123456789, 2.9, 59.0])
def test_whether_a_report_went_beyond_is_seen_in_what_came_of_it(text: str, elapsed: float) -> None:
    limit = parse_limit(text)
    store = MemoryStore(clock=ManualClock(NOON + elapsed))

    def after(amount: int) -> bool:
        (outcome,) = store.run(Charge((Check("g", "k", limit, amount),)))
        return went_beyond(limit, outcome)

    quota = limit.quota
    assert not after(quota)
    for more in (1, quota, 1, 3 * quota):
        assert after(more)
