"""What is put to the test, wherever the rule comes from."""

from __future__ import annotations

import pytest

from headgate.errors import NotationError, OptionError
from headgate.limits import Concurrency, LeakyQueue, TokenBucket, parse_limits
from headgate.loadtest.limit_under_test import LimitUnderTest, limit_in_notation, limit_of_rule
from headgate.policy.loader import read_policy
from headgate.units import SECOND

POLICY = read_policy("""\
version: 1
rules:
  - {id: plain, key_by: ip, limit: 100/s}
  - {id: tiers, key_by: ip, limits: {free: 10/s, paid: "100/s burst 200"}}
  - {id: dear, key_by: ip, limit: 10/s, cost: 3}
  - {id: by-path, key_by: ip, limit: 10/s, cost: {default: 1, endpoints: {"POST /pdf": 5}}}
  - {id: shadow, key_by: ip, limit: 10/s, mode: shadow}
  - {id: off, key_by: ip, limit: 10/s, mode: "off"}
  - {id: lent, key_by: ip, limit: 1000/s, accuracy: {max_overshoot: 1%}}
  - {id: batches, key_by: ip, limit: 1000/s, accuracy: {batch: 10}}
  - {id: shares, key_by: ip, limit: 10/s, decide: quota}
  - {id: queue, key_by: ip, shape: {rate: 10/s, queue: 5}}
  - {id: turns, key_by: ip, fair: {slots: 5}}
  - {id: slots, key_by: ip, concurrency: {limit: 5, ttl: 10s}}
""")


def test_a_limit_in_the_notation_can_be_tested() -> None:
    assert limit_in_notation("100/s burst 20").limits == (TokenBucket(20, 100),)
    assert limit_in_notation("10/s; 100/m", cost=2, overshoot=3).extra == (3, 3)
    with pytest.raises(NotationError):
        limit_in_notation("100/fortnight")


@pytest.mark.parametrize("limit", [Concurrency(5, 10), LeakyQueue(10, 5)])
def test_what_is_no_rate_is_rejected(limit: Concurrency | LeakyQueue) -> None:
    with pytest.raises(OptionError, match=r"[aA] load test"):
        LimitUnderTest((limit,))


def test_a_cost_that_never_fits_is_rejected() -> None:
    with pytest.raises(OptionError, match="expected 1 to 5"):
        limit_in_notation("5/s", cost=6)


def test_what_a_caller_is_due_is_a_burst_and_then_the_rate() -> None:
    assert limit_in_notation("100/s").due_in(10 * SECOND) == 1_100
    assert limit_in_notation("100/s burst 20", cost=2).due_in(10 * SECOND) == 510
    assert limit_in_notation("10/s; 30/minute").due_in(10 * SECOND) == 35
    assert limit_in_notation("5/minute fixed_window").due_in(12 * SECOND) == 6


def test_windows_by_the_clock_are_known_as_such() -> None:
    aligned = [limit_in_notation(f"5/s {one}").is_aligned for one in ("fixed_window", "gcra")]
    assert aligned == [True, False]


def test_a_rule_is_found_by_its_id() -> None:
    found = limit_of_rule(POLICY, "plain")
    assert (found.limits, found.rule_id, found.cost) == (parse_limits("100/s"), "plain", 1)
    assert limit_of_rule(POLICY, "tiers", tier="paid").text == "100/s burst 200"
    assert limit_of_rule(POLICY, "dear").cost == 3
    assert limit_of_rule(POLICY, "by-path", cost=5).cost == 5


def test_what_a_rule_may_overshoot_is_allowed_for() -> None:
    found = limit_of_rule(POLICY, "lent")
    assert (found.extra, found.ceilings) == ((10,), (TokenBucket(1_010, 1_000),))
    assert limit_of_rule(POLICY, "batches", overshoot=40).extra == (40,)
    assert limit_of_rule(POLICY, "plain").ceilings == limit_of_rule(POLICY, "plain").limits


def test_who_decides_is_remarked_on_where_it_is_not_the_service() -> None:
    assert "decide: quota" in limit_of_rule(POLICY, "shares").remark
    assert not limit_of_rule(POLICY, "plain").remark


@pytest.mark.parametrize(
    ("rule_id", "tier", "said"),
    [
        ("plane", None, "expected one of plain, tiers"),
        ("tiers", None, "expected --tier: free, paid"),
        ("tiers", "gold", "expected one of free, paid"),
        ("by-path", None, "expected --cost N"),
        ("shadow", None, "a shadow rule"),
        ("off", None, "is off"),
        ("batches", None, "expected --overshoot N"),
        ("queue", None, "delays requests instead of denying them"),
        ("turns", None, "fair queue"),
        ("slots", None, "limits concurrency"),
    ],
)
def test_a_rule_that_cannot_be_tested_is_rejected_with_what_would_do(
    rule_id: str, tier: str | None, said: str
) -> None:
    with pytest.raises(OptionError, match=said):
        limit_of_rule(POLICY, rule_id, tier=tier)
