"""Calls under the configuration of envoyproxy/ratelimit."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from headgate.policy.envoy_config.reader import read_envoy_config
from headgate.service.rls import RlsOptions
from headgate.testing import ManualClock
from tests.support import envoy_messages
from tests.support.rls_client import NOON, OK, OVER, Asker, DistantStore, codes_of, desc, headers_of

if TYPE_CHECKING:
    from headgate.stores.operations import Operation

R = TypeVar("R")

CONFIG = """
domain: legacy
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 3}
  - key: user
    value: root
    rate_limit: {unlimited: true}
  - key: user
    value: banned
    rate_limit: {unit: hour, requests_per_unit: 0}
  - key: trial
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: files
    value: "a*"
    share_threshold: true
    rate_limit: {unit: minute, requests_per_unit: 2}
  - key: plan
    rate_limit: {name: plan, unit: minute, requests_per_unit: 1}
  - key: special
    rate_limit: {name: special, unit: week, requests_per_unit: 5, replaces: [{name: plan}]}
  - key: quota
    quota_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
    metadata: {lane: fast, more: {of: quota}}
  - key: budget
    quota_mode: true
    rate_limit: {unit: minute, requests_per_unit: 2}
    metadata: {lane: slow, more: {in: budget}}
"""
LIMIT = envoy_messages.service.RateLimitResponse.RateLimit
RULES = "version: 1\nrules: [{id: all, key_by: global, limit: 1/minute}]\n"
MOST = 2**32 - 1


def legacy(**options: object) -> Asker:
    return Asker(envoy=CONFIG, options=RlsOptions(**options))  # type: ignore[arg-type]  # as given


def test_a_fixed_window_is_counted_for_each_value() -> None:
    asker = legacy()
    assert [asker.code("legacy", desc("user=ada")) for _ in range(4)] == [OK, OK, OK, OVER]
    assert asker.code("legacy", desc("user=bob")) == OK
    asker.clock.advance(60)
    assert asker.code("legacy", desc("user=ada")) == OK


def test_a_status_is_as_the_original_has_it() -> None:
    asker = legacy()
    asker.clock.advance(15)
    user, special = asker.ask("legacy", desc("user=ada"), desc("special=x")).statuses
    assert user.current_limit == LIMIT(requests_per_unit=3, unit=LIMIT.MINUTE)
    assert (user.limit_remaining, user.duration_until_reset.seconds) == (2, 45)
    expected = LIMIT(requests_per_unit=5, unit=LIMIT.WEEK, name="special")
    assert special.current_limit == expected


def test_the_domain_decides_between_configuration_and_rules() -> None:
    asker = Asker(RULES, CONFIG)
    assert asker.ask("legacy", desc("nobody=x")).statuses[0].HasField("current_limit") is False
    assert [asker.code("edge", desc("user=ada")) for _ in range(2)] == [OK, OVER]
    assert asker.code("legacy", desc("user=ada")) == OK


def test_what_is_not_configured_passes_without_a_limit() -> None:
    asker = legacy()
    answer = asker.ask("legacy", desc("user=ada", "more=x"), desc("other=x"), desc())
    assert codes_of(answer) == [OK, OK, OK]
    assert not any(one.HasField("current_limit") for one in answer.statuses)


def test_unlimited_says_so_and_counts_nothing() -> None:
    answer = legacy().ask("legacy", desc("user=root"), hits=10**6)
    (status,) = answer.statuses
    assert (status.code, status.limit_remaining) == (OK, MOST)
    assert not status.HasField("current_limit")


def test_a_limit_of_zero_lets_nothing_pass_and_charges_no_other() -> None:
    asker = legacy()
    asker.clock.advance(60)
    answer = asker.ask("legacy", desc("user=banned"), desc("user=ada"))
    assert answer.overall_code == OVER
    assert codes_of(answer) == [OVER, OK]
    assert answer.statuses[0].current_limit == LIMIT(requests_per_unit=0, unit=LIMIT.HOUR)
    assert answer.statuses[0].duration_until_reset.seconds == 3600 - 60
    assert asker.left("legacy", "user=ada") == 3


def test_shadow_mode_counts_and_lets_pass() -> None:
    asker = legacy()
    answers = [asker.ask("legacy", desc("trial=x")) for _ in range(2)]
    assert [one.overall_code for one in answers] == [OK, OK]
    (status,) = answers[1].statuses
    assert (status.code, status.limit_remaining) == (OK, 0)
    assert status.current_limit.requests_per_unit == 1
    assert not any(one.response_headers_to_add for one in answers)


def test_entries_that_share_a_threshold_have_one_counter() -> None:
    asker = legacy()
    codes = [asker.code("legacy", desc(f"files={name}")) for name in ("ab", "ac", "ad")]
    assert codes == [OK, OK, OVER]


def test_what_another_limit_replaces_is_not_counted() -> None:
    asker = legacy()
    for _ in range(2):
        answer = asker.ask("legacy", desc("plan=x"), desc("special=x"))
        assert codes_of(answer) == [OK, OK]
        assert not answer.statuses[0].HasField("current_limit")
    assert asker.left("legacy", "plan=x") == 1


def test_one_quota_with_room_is_enough_and_the_full_one_is_not_charged() -> None:
    asker = legacy()
    both = (desc("quota=x"), desc("budget=x"))
    answers = [asker.ask("legacy", *both) for _ in range(3)]
    assert [one.overall_code for one in answers] == [OK, OK, OVER]
    assert [codes_of(one) for one in answers] == [[OK, OK], [OVER, OK], [OVER, OVER]]


def test_a_quota_that_others_use_up_meanwhile_is_left_out() -> None:
    class Contested(DistantStore):
        async def arun(self, operation: Operation[R]) -> R:
            reply = await super().arun(operation)
            if self.rounds == 1:  # looked at, and not charged yet
                rivals.ask("legacy", desc("quota=x"))
            return reply

    store = Contested(ManualClock(NOON))
    rivals = Asker(envoy=CONFIG, store=store.memory)
    asker = Asker(envoy=CONFIG, store=store)
    answer = asker.ask("legacy", desc("user=ada"), desc("quota=x"), desc("budget=x"))
    assert answer.overall_code == OK
    assert codes_of(answer) == [OK, OVER, OK]
    assert rivals.left("legacy", "user=ada") == 2
    assert rivals.left("legacy", "budget=x") == 1


def test_quotas_are_not_charged_when_a_limit_denies_nor_limits_when_no_quota_has_room() -> None:
    asker = legacy()
    for _ in range(3):
        asker.ask("legacy", desc("user=ada"))
    assert asker.code("legacy", desc("user=ada"), desc("quota=x")) == OVER
    assert asker.left("legacy", "quota=x") == 1
    assert asker.code("legacy", desc("quota=x")) == OK
    assert asker.code("legacy", desc("user=bob"), desc("quota=x")) == OVER
    assert asker.left("legacy", "user=bob") == 3


def test_a_limit_that_a_call_brings_takes_the_place_of_the_configured_one_modes_and_all() -> None:
    asker = legacy()
    brought = desc("trial=x", limit=(1, "YEAR"))
    answers = [asker.ask("legacy", brought) for _ in range(2)]
    assert [one.overall_code for one in answers] == [OK, OVER]
    limit = answers[0].statuses[0].current_limit
    assert limit == LIMIT(requests_per_unit=1, unit=LIMIT.YEAR)


def test_hits_of_a_call_and_of_a_descriptor() -> None:
    asker = legacy()
    asker.ask("legacy", desc("user=ada"), desc("user=bob", hits=1), hits=2)
    assert asker.left("legacy", "user=ada") == 1
    assert asker.left("legacy", "user=bob") == 2


def test_by_default_a_denied_call_charges_nothing() -> None:
    asker = legacy()
    codes = [asker.code("legacy", desc("user=ada"), hits=hits) for hits in (2, 2, 1)]
    assert codes == [OK, OVER, OK]


def test_charging_always_counts_what_is_denied_until_the_window_ends() -> None:
    asker = legacy(charge="always")
    answers = [asker.ask("legacy", desc("user=ada"), hits=hits) for hits in (2, 2, 1)]
    assert [one.overall_code for one in answers] == [OK, OVER, OVER]
    assert [one.statuses[0].limit_remaining for one in answers] == [1, 0, 0]
    asker.clock.advance(60)
    assert asker.code("legacy", desc("user=ada"), hits=3) == OK


def test_charging_always_counts_each_descriptor_by_itself() -> None:
    asker = legacy(charge="always")
    for _ in range(3):
        asker.ask("legacy", desc("user=ada"))
    answer = asker.ask("legacy", desc("user=ada"), desc("user=bob"), desc("trial=x"))
    assert answer.overall_code == OVER
    assert codes_of(answer) == [OVER, OK, OK]
    assert asker.left("legacy", "user=bob") == 2
    assert asker.code("legacy", desc("user=banned"), desc("user=bob")) == OVER
    assert asker.left("legacy", "user=bob") == 1


def test_a_configuration_is_replaced_as_a_whole() -> None:
    asker = legacy()
    for _ in range(3):
        asker.ask("legacy", desc("user=ada"))
    wider = CONFIG.replace("requests_per_unit: 3", "requests_per_unit: 4")
    asker.core.envoy = read_envoy_config([("wider.yaml", wider)])
    assert [asker.code("legacy", desc("user=ada")) for _ in range(2)] == [OK, OVER]
    asker.core.envoy = None
    assert asker.code("legacy", desc("user=ada")) == OK


def test_metadata_is_sent_back_if_asked_for() -> None:
    asker = legacy(metadata=True)
    calls = (desc("quota=x", hits=1), desc("budget=x", limit=None))
    struct = asker.ask("legacy", *calls, hits=1).dynamic_metadata
    assert dict(struct.items()).keys() == {"domain", "descriptors", "hitsAddend", "metadata"}
    assert struct["domain"] == "legacy"
    assert struct["hitsAddend"] == 1
    assert list(struct["descriptors"][0]["entries"]) == ["quota=x"]
    assert struct["descriptors"][0]["hitsAddend"] == 1
    assert struct["metadata"]["lane"] == "fast"
    assert dict(struct["metadata"]["more"].items()) == {"of": "quota", "in": "budget"}
    second = asker.ask("legacy", *calls, hits=1).dynamic_metadata
    assert second["metadata"]["lane"] == "slow"
    brought = asker.ask("legacy", desc("a=b", limit=(5, "DAY"))).dynamic_metadata
    assert brought["descriptors"][0]["limit"] == "requests_per_unit:5 unit:DAY"
    assert "metadata" not in brought


def test_headers_name_a_limit_in_ascii() -> None:
    config = "domain: größe\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 5}}]"
    answer = Asker(envoy=config).ask("größe", desc("a=b"))
    assert headers_of(answer)["ratelimit-policy"] == '"gr??e.a";q=5;w=86400'
