"""Descriptors under the rules of a policy."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from headgate.policy.envoy_config.attributes import attributes_of, request_of
from headgate.policy.loader import read_policy
from headgate.policy.model import Override
from headgate.units import SECOND
from tests.support import envoy_messages
from tests.support.rls_client import NOON, OK, OVER, Asker, codes_of, desc, headers_of

if TYPE_CHECKING:
    from _pytest.logging import LogCaptureFixture

USERS = """
version: 1
rules:
  - id: per-user
    match: {attributes: {domain: edge, descriptor: user}}
    key_by: "attribute:user"
    limit: 3/minute fixed_window
"""
UNIT = envoy_messages.service.RateLimitResponse.RateLimit


def test_a_descriptor_is_counted_by_the_rule_that_it_matches() -> None:
    asker = Asker(USERS)
    assert [asker.code("edge", desc("user=ada")) for _ in range(4)] == [OK, OK, OK, OVER]
    assert asker.code("edge", desc("user=bob")) == OK
    asker.clock.advance(60)
    assert asker.code("edge", desc("user=ada")) == OK


def test_a_status_says_the_limit_what_is_left_and_when_it_comes_back() -> None:
    asker = Asker(USERS)
    asker.clock.advance(10.5)
    (status,) = asker.ask("edge", desc("user=ada")).statuses
    assert status.code == OK
    assert status.current_limit == UNIT(requests_per_unit=3, unit=UNIT.MINUTE, name="per-user")
    assert status.limit_remaining == 2
    assert (status.duration_until_reset.seconds, status.duration_until_reset.nanos) == (50, 0)


def test_a_refused_status_says_how_long_to_wait() -> None:
    asker = Asker("version: 1\nrules: [{id: all, key_by: global, limit: 60/minute}]\n")
    assert asker.code("edge", desc("a=b"), hits=60) == OK
    (status,) = asker.ask("edge", desc("a=b"), hits=5).statuses
    assert status.code == OVER
    assert status.limit_remaining == 0
    assert status.duration_until_reset.seconds == 5


def test_a_limit_in_no_unit_of_theirs_has_none() -> None:
    asker = Asker("version: 1\nrules: [{id: all, key_by: global, limit: 10/15s}]\n")
    (status,) = asker.ask("edge", desc("a=b")).statuses
    assert status.current_limit == UNIT(requests_per_unit=10, name="all")


def test_what_no_rule_matches_passes_without_a_limit() -> None:
    answer = Asker(USERS).ask("other", desc("user=ada"), desc("ip=x"))
    assert answer.overall_code == OK
    assert codes_of(answer) == [OK, OK]
    assert not any(one.HasField("current_limit") for one in answer.statuses)
    assert not answer.response_headers_to_add


def test_statuses_are_in_the_order_of_the_descriptors() -> None:
    asker = Asker(USERS)
    for _ in range(3):
        asker.ask("edge", desc("user=bob"))
    answer = asker.ask("edge", desc("user=ada"), desc("none=x"), desc("user=bob"))
    assert codes_of(answer) == [OK, OK, OVER]
    assert answer.overall_code == OVER


def test_a_call_that_one_descriptor_denies_charges_no_other() -> None:
    asker = Asker(USERS)
    for _ in range(3):
        asker.ask("edge", desc("user=bob"))
    for _ in range(5):
        assert asker.code("edge", desc("user=ada"), desc("user=bob")) == OVER
    assert asker.left("edge", "user=ada") == 3


def test_a_counter_that_two_descriptors_name_is_charged_twice_or_not_at_all() -> None:
    asker = Asker(USERS)
    assert asker.code("edge", desc("user=ada"), desc("user=ada")) == OK
    assert asker.left("edge", "user=ada") == 1
    assert asker.code("edge", desc("user=ada"), desc("user=ada")) == OVER
    assert asker.left("edge", "user=ada") == 1


def test_hits_are_those_of_the_descriptor_else_of_the_call_else_one() -> None:
    policy = "version: 1\nrules: [{id: u, key_by: 'attribute:u', limit: 100/minute}]\n"
    asker = Asker(policy)
    asker.ask("edge", desc("u=a", hits=7), desc("u=b"), hits=5)
    asker.ask("edge", desc("u=c"))
    assert [asker.left("edge", f"u={name}") for name in "abc"] == [93, 95, 99]


def test_where_nobody_says_how_many_the_rule_does() -> None:
    asker = Asker("version: 1\nrules: [{id: all, key_by: global, limit: 10/m, cost: 4}]\n")
    asker.ask("edge", desc("a=b"))
    assert asker.left("edge", "a=b") == 6
    asker.ask("edge", desc("a=b"), hits=1)
    assert asker.left("edge", "a=b") == 5


def test_amounts_that_do_not_fit_are_refused_and_smaller_ones_are_not() -> None:
    asker = Asker("version: 1\nrules: [{id: all, key_by: global, limit: 10/m}]\n")
    codes = [asker.code("edge", desc("a=b", hits=hits)) for hits in (6, 6, 4)]
    assert codes == [OK, OVER, OK]


def test_hits_of_a_descriptor_given_back_are_there_again() -> None:
    asker = Asker(USERS)
    for _ in range(3):
        asker.ask("edge", desc("user=ada"))
    answer = asker.ask("edge", desc("user=ada", hits=2, negative=True))
    assert answer.overall_code == OK
    assert answer.statuses[0].limit_remaining == 2
    assert asker.code("edge", desc("user=ada", negative=True), hits=1000) == OK
    assert asker.left("edge", "user=ada") == 3  # never beyond as new


def test_rules_see_well_known_entries_as_what_they_are() -> None:
    asked = request_of(
        "edge",
        (
            (":path", "/Login?next=1"),
            (":method", "POST"),
            (":authority", "example.org"),
            ("masked_remote_address", "10.1.2.0/24"),
            ("x-user-id", "ada"),
        ),
    )
    assert (asked.path, asked.method, asked.host) == ("/Login", "POST", "example.org")
    assert asked.peer == "10.1.2.0"
    assert asked.header("x-user-id") == "ada"
    assert asked.attributes["domain"] == "edge"
    assert asked.attributes[":path"] == "/Login?next=1"


def test_of_two_entries_for_one_thing_the_first_counts() -> None:
    asked = request_of("edge", (("path", "/a"), (":path", "/b"), ("remote_address", "10.0.0.1")))
    assert (asked.path, asked.peer) == ("/a", "10.0.0.1")
    assert (asked.method, asked.host) == ("", "")


@pytest.mark.parametrize(
    "entries",
    [(), (("a", "1"),), (("a", "1"), ("a", "2")), (("domain", "x"), ("a/b", "y"), ("path", "/z"))],
)
def test_attributes_are_those_that_a_converted_configuration_relies_on(
    entries: tuple[tuple[str, str], ...],
) -> None:
    assert request_of("edge", entries).attributes == attributes_of("edge", entries)


def test_an_ordinary_rule_works() -> None:
    asker = Asker(
        "version: 1\nrules:\n"
        "  - {id: login, match: {endpoint: /login, method: POST}, key_by: ip, limit: 1/minute}\n"
    )

    def code(ip: str, path: str = "/login", method: str = "POST") -> int:
        entries = (f"remote_address={ip}", f"path={path}", f"method={method}")
        return asker.code("edge", desc(*entries))

    assert [code("10.0.0.1"), code("10.0.0.1"), code("10.0.0.2")] == [OK, OVER, OK]
    assert code("10.0.0.1", "/other") == OK
    assert code("10.0.0.1", method="GET") == OK
    assert asker.code("edge", desc("remote_address=10.0.0.1", "path=/login")) == OK


def test_a_rule_in_shadow_is_counted_and_shows_nothing() -> None:
    asker = Asker(
        "version: 1\nrules:\n"
        "  - {id: real, key_by: global, limit: 5/minute}\n"
        "  - {id: trial, key_by: global, limit: 1/minute, mode: shadow}\n"
    )
    answers = [asker.ask("edge", desc("a=b")) for _ in range(3)]
    assert [one.overall_code for one in answers] == [OK] * 3
    assert answers[-1].statuses[0].current_limit.name == "real"
    assert answers[-1].statuses[0].limit_remaining == 2


def test_a_rule_in_shadow_alone_shows_nothing_either() -> None:
    trial = "version: 1\nrules: [{id: t, key_by: global, limit: 1/minute, mode: shadow}]\n"
    asker = Asker(trial)
    for _ in range(3):
        answer = asker.ask("edge", desc("a=b"))
        assert (answer.overall_code, codes_of(answer)) == (OK, [OK])
        assert not answer.statuses[0].HasField("current_limit")
        assert not answer.response_headers_to_add


def test_the_tightest_rule_speaks_for_its_descriptor() -> None:
    asker = Asker(
        "version: 1\nrules:\n"
        "  - {id: wide, key_by: global, limit: 100/minute; 50/hour}\n"
        "  - {id: tight, key_by: global, limit: 2/hour}\n"
    )
    statuses = [asker.ask("edge", desc("a=b")).statuses[0] for _ in range(3)]
    assert [one.current_limit.name for one in statuses] == ["tight"] * 3
    assert [one.code for one in statuses] == [OK, OK, OVER]


def test_a_limit_that_a_call_brings_takes_the_place_of_that_of_the_rule() -> None:
    asker = Asker(USERS)
    wide = desc("user=ada", limit=(5, "HOUR"))
    answers = [asker.ask("edge", wide) for _ in range(6)]
    assert [one.overall_code for one in answers] == [OK] * 5 + [OVER]
    limit = answers[0].statuses[0].current_limit
    assert limit == UNIT(requests_per_unit=5, unit=UNIT.HOUR, name="per-user")


def test_where_no_rule_is_a_limit_that_a_call_brings_counts_by_the_descriptor() -> None:
    asker = Asker(USERS)
    ada, bob = (desc(f"team={name}", limit=(1, "DAY")) for name in ("ada", "bob"))
    assert [asker.code("x", one) for one in (ada, ada, bob)] == [OK, OVER, OK]
    assert asker.code("y", ada) == OK


def test_a_limit_of_zero_lets_nothing_pass_and_charges_nothing() -> None:
    asker = Asker(USERS)
    answer = asker.ask("edge", desc("user=bob"), desc("user=ada", limit=(0, "MINUTE")))
    assert answer.overall_code == OVER
    assert codes_of(answer) == [OK, OVER]
    limit = answer.statuses[1].current_limit
    assert limit == UNIT(requests_per_unit=0, unit=UNIT.MINUTE, name="per-user")
    assert answer.statuses[1].duration_until_reset.seconds == 60
    assert asker.left("edge", "user=bob") == 3


def test_limits_on_places_are_left_out_and_said_so_once(caplog: LogCaptureFixture) -> None:
    asker = Asker(
        "version: 1\nrules:\n"
        "  - {id: slots, key_by: global, algorithm: concurrency, limit: 1, ttl: 1h}\n"
    )
    with caplog.at_level(logging.WARNING, "headgate.service.rls"):
        codes = [asker.code("edge", desc(f"a={n}")) for n in range(3)]
    assert codes == [OK] * 3
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("rule 'slots': its concurrency limit is left out")


def test_a_new_policy_is_in_force_from_the_next_call_on() -> None:
    asker = Asker(USERS)
    for _ in range(3):
        asker.ask("edge", desc("user=ada"))
    assert asker.code("edge", desc("user=ada")) == OVER
    asker.core.rules.replace(read_policy(USERS.replace("3/minute", "5/minute")))
    assert [asker.code("edge", desc("user=ada")) for _ in range(3)] == [OK, OK, OVER]
    asker.core.rules.replace(read_policy("version: 1\nrules: []\n"))
    assert asker.code("edge", desc("user=ada")) == OK


def test_what_is_told_of_a_rule_changes_with_the_policy() -> None:
    asker = Asker(USERS)
    for _ in range(3):
        assert asker.ask("edge", desc("user=ada")).response_headers_to_add
    hidden = USERS.replace("limit: 3/minute", "headers: 'off'\n    limit: 3/minute")
    asker.core.rules.replace(read_policy(hidden))
    answer = asker.ask("edge", desc("user=bob"))
    assert not answer.response_headers_to_add
    assert not answer.statuses[0].HasField("current_limit")


def test_a_blocked_counter_denies_the_call_and_nothing_is_charged() -> None:
    policy = read_policy(USERS)
    until = round((NOON + 90) * SECOND)
    block = Override("per-user", "attribute:user=eve", until, block=True)
    clocked = Asker(replace(policy, overrides=(block,)))
    answer = clocked.ask("edge", desc("user=ada"), desc("user=eve"))
    assert answer.overall_code == OVER
    assert codes_of(answer) == [OK, OVER]
    assert answer.statuses[1].duration_until_reset.seconds == 90
    assert headers_of(answer)["retry-after"] == "90"
    for _ in range(3):
        assert clocked.code("edge", desc("user=ada"), desc("user=eve")) == OVER
    assert clocked.left("edge", "user=ada") == 3
    clocked.clock.advance(91)
    assert clocked.code("edge", desc("user=ada"), desc("user=eve")) == OK
