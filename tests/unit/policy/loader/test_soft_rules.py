"""Rules that delay, have slots or take turns: what is read, refused and warned of."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from headgate.limits import Concurrency, LeakyQueue, TokenBucket
from headgate.policy.loader import examine_policy
from headgate.policy.model import AdaptiveSlots, Fair
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from headgate.policy.model import Rule
    from headgate.policy.problems import Problem

PRIORITY = "priority: [{class: critical, match: {endpoint: /pay}}]\npressure: {}\n"
FLOORED = "{id: z, key_by: global, limit: 1/s, adaptive: {floor: 20%}}"
RESERVING = "{id: y, key_by: global, concurrency: {limit: 9, reserve: {critical: 20%}}}"


def read(fields: str) -> tuple[Rule | None, list[Problem]]:
    """A rule with *fields*, in a policy in which what it may rely on is there."""
    rules = f"rules:\n  - {{id: a, key_by: ip, {fields}}}\n  - {FLOORED}\n  - {RESERVING}\n"
    examined = examine_policy(f"version: 1\n{PRIORITY}{rules}")
    return (examined.policy.rules[0] if examined.policy else None), list(examined.problems)


def good(fields: str) -> Rule:
    rule, problems = read(fields)
    assert problems == []
    assert rule is not None
    return rule


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("shape: {rate: 10/s, queue: 100, max_wait: 5s}", LeakyQueue(10, 100, 5)),
        ("shape: {rate: 100 per minute, queue: 7}", LeakyQueue(Fraction(5, 3), 7)),
        ("shape: {rate: 10/s, max_wait: 5s}", LeakyQueue(10, 50, 5)),
        ("shape: {rate: 10/s, max_wait: 150ms}", LeakyQueue(10, 2, 0.15)),
        ("shape: {rate: 10/s, queue: 5, max_wait: 1}", LeakyQueue(10, 5, 1)),
        ("shape: {rate: 10/s, queue: 0}", LeakyQueue(10, 0)),
        ("algorithm: leaky_queue, rate_per_sec: 0.5, queue: 3", LeakyQueue(0.5, 3)),
        ("algorithm: leaky_queue, rate: 5/3s, queue: 3", LeakyQueue(Fraction(5, 3), 3)),
        ("concurrency: 200", Concurrency(200, 60)),
        ("concurrency: {limit: 20, ttl: 30s}", Concurrency(20, 30)),
        (
            "concurrency: {limit: 200, share_by: tier, shares: {big: 40%, paid: 60}}",
            Concurrency(200, 60, (("big", 80), ("paid", 60))),
        ),
        (
            "concurrency: {limit: 9, share_by: tier, shares: {a: 33%, b: 1%}, lends: false}",
            Concurrency(9, 60, (("a", 2), ("b", 1)), lends=False),
        ),
    ],
)
def test_it_is_one_limit(written: str, meant: Any) -> None:
    assert good(written).limits == {None: (meant,)}


def test_they_stand_by_tier_and_in_stacks() -> None:
    slots = "{algorithm: concurrency, limit: 9, ttl: 5s, shares: {x: 50%}}"
    queue = "{algorithm: leaky_queue, rate_per_sec: 5, queue: 3, max_wait: 1s}"
    rule = good(f"limits: {{paid: [5/s, {queue}], default: {slots}}}, share_by: tenant")
    assert rule.limits == {
        "paid": (TokenBucket(5, 5), LeakyQueue(5, 3, 1)),
        None: (Concurrency(9, 5, (("x", 4),)),),
    }
    assert rule.share_by == "tenant"


def test_slots_say_who_has_a_share_and_what_is_kept() -> None:
    rule = good(
        "concurrency: {limit: 9, share_by: priority, shares: {critical: 2, default: 1},"
        " reserve: {critical: 20%, default: 12.5%}}"
    )
    assert rule.share_by == "priority"
    assert rule.reserve == {"critical": Fraction(1, 5), "default": Fraction(1, 8)}


def test_a_rule_without_any_of_it_is_as_before() -> None:
    rule = good("limit: 5/s")
    assert (rule.fair, rule.reserve, rule.share_by, rule.floor) == (None, {}, None, None)


def test_a_floor_is_read() -> None:
    assert good("limit: 100/s, adaptive: {floor: 12.5%}").floor == Fraction(1, 8)


def test_burst_credits_are_two_limits() -> None:
    (limits,) = good("limit: 10/s peak 100/s for 30s").limits.values()
    assert limits == (TokenBucket(2710, 10), TokenBucket(10, 100))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("{slots: 50}", Fair(slots=50, queue=100, max_wait_ns=SECOND)),
        ("{rate: 100/m, queue: 0, max_wait: 0}", Fair(rate=Fraction(5, 3), queue=0, max_wait_ns=0)),
        (
            "{slots: 5, weights: {big: 4, default: 2}, max_wait: 2s, reserve: {critical: 20%}}",
            Fair(
                slots=5,
                weights={"big": 4, None: 2},
                max_wait_ns=2 * SECOND,
                reserve={"critical": Fraction(1, 5)},
            ),
        ),
        (
            "{slots: {adaptive: gradient, min: 5, max: 200, target: 200ms}}",
            Fair(AdaptiveSlots("gradient", 5, 200, 200 * MILLISECOND)),
        ),
        ("{slots: {adaptive: aimd}}", Fair(AdaptiveSlots("aimd", 1, 1000))),
    ],
)
def test_turns_are_read(written: str, meant: Fair) -> None:
    rule = good(f"fair: {written}")
    assert rule.fair == meant
    assert rule.limits == {}


SHARES = "share_by: tier, shares"


@pytest.mark.parametrize(
    ("written", "field", "message"),
    [
        ("limit: 5/s, fair: {slots: 5}", "limit", "a rule has limits in one form; found limit and"),
        ("shape: {rate: 5/s, queue: 1}, limits: [5/s]", "limit", "a rule has limits in one form;"),
        ("concurrency: 5, algorithm: gcra", "limit", "a rule has limits in one form; found conc"),
        ("shaep: {rate: 5/s, queue: 1}", "shaep", "unknown field"),
        ("shape: 10/s", "shape", "found 10/s, expected the delay of requests: a mapping"),
        ("shape: {queue: 5}", "shape.rate", "missing; expected a rate such as 10/s"),
        ("shape: {rate: 10, queue: 5}", "shape.rate", "not a rate, at character 3: the limit ends"),
        (
            "shape: {rate: 9/s burst 5, queue: 5}",
            "shape.rate",
            "not a rate, at character 5: 'burst",
        ),
        (
            "shape: {rate: 10/s}",
            "shape",
            "the length of the queue is missing; expected queue, max_wait",
        ),
        ("shape: {rate: 10/s, queue: -1}", "shape.queue", "found '-1', expected a whole number"),
        ("shape: {rate: 1000/s, max_wait: 1h}", "shape.max_wait", "max_wait is 3600 seconds: 3600"),
        ("shape: {rate: 1/w, queue: 9_999}", "shape.rate", "rate is 1.65343915343"),
        ("shape: {rate: 5/s, queue: 1, wait: 5s}", "shape.wait", "unknown field"),
        ("algorithm: leaky_queue, queue: 1", "rate_per_sec", "missing; expected the rate_per_sec"),
        (
            "algorithm: leaky_queue, queue: 1, rate: 5/s, rate_per_sec: 5",
            "rate",
            "rate_per_sec is given as well",
        ),
        ("algorithm: gcra, burst: 5, rate_per_sec: 5, queue: 5", "queue", "gcra has no queue; it "),
        ("concurrency: 0", "concurrency", "found 0, expected a whole number from 1"),
        ("concurrency: {ttl: 5s}", "concurrency.limit", "missing; expected a whole number from 1"),
        (
            f"concurrency: {{limit: 5, {SHARES}: {{a: 101%}}}}",
            "concurrency.shares.a",
            "found 101%, expected",
        ),
        (
            f"concurrency: {{limit: 5, {SHARES}: {{a: 0}}}}",
            "concurrency.shares.a",
            "found 0, expec",
        ),
        (
            f"concurrency: {{limit: 5, {SHARES}: {{}}}}",
            "concurrency.shares",
            "found a mapping, exp",
        ),
        (
            f"concurrency: {{limit: 5, {SHARES}: {{a/b: 1}}}}",
            "concurrency.shares['a/b']",
            "'a/b' is not the name of a share",
        ),
        (
            f"concurrency: {{limit: 5, {SHARES}: {{a: 50%, b: 60%, c: 2}}}}",
            "concurrency.shares",
            "the shares are 7 slots together; the limit has only 5",
        ),
        (
            "concurrency: {limit: 5, lends: false}",
            "concurrency",
            "lends is about shares, and there",
        ),
        (
            "concurrency: {limit: 5, shares: {a: 1}}",
            "concurrency.share_by",
            "missing; expected what",
        ),
        (
            "concurrency: {limit: 5, share_by: teir, shares: {a: 1}}",
            "concurrency.share_by",
            "'teir' is not a name in identity",
        ),
        (
            "concurrency: {limit: 5, share_by: api_key, shares: {a: 1}}",
            "concurrency.share_by",
            "'api_key' is a secret, and the store has shares under their names",
        ),
        (
            "concurrency: {limit: 5, share_by: priority, shares: {gold: 1}}",
            "concurrency.share_by",
            "there is no class 'gold' for a share",
        ),
        (
            f"concurrency: {{limit: 5, {SHARES}: {{default: 1}}}}",
            "concurrency.share_by",
            "'default' cannot have a share: other callers use",
        ),
        (
            "concurrency: 5, reserve: {critical: 5%}",
            "reserve",
            "a rule with concurrency has it there",
        ),
        ("limit: 5/s, reserve: {critical: 5%}", "reserve", "needs slots, and the rule has none"),
        (
            "concurrency: {limit: 5, reserve: {sheddable: 5%}}",
            "concurrency.reserve.sheddable",
            "found 'sheddable'",
        ),
        (
            "concurrency: {limit: 5, reserve: {critcal: 5%}}",
            "concurrency.reserve.critcal",
            "found 'critcal'",
        ),
        (
            "concurrency: {limit: 5, reserve: {critical: 60%, default: 40%}}",
            "concurrency.reserve",
            "100% are reserved: nothing is left for other requests",
        ),
        ("fair: {}", "fair.slots", "found none, expected exactly one of slots, rate"),
        (
            "fair: {slots: 5, rate: 5/s}",
            "fair.slots",
            "found slots and rate, expected exactly",
        ),
        ("fair: {slots: 0}", "fair.slots", "found 0, expected a whole number from 1"),
        ("fair: {slots: {adaptive: gradiant}}", "fair.slots.adaptive", "found 'gradiant'"),
        (
            "fair: {slots: {min: 5}}",
            "fair.slots.adaptive",
            "missing; expected one of gradient, aimd",
        ),
        (
            "fair: {slots: {adaptive: aimd, min: 9, max: 3}}",
            "fair.slots.min",
            "the min of 9 is above the max of 3",
        ),
        ("fair: {slots: 5, weights: {a: 0}}", "fair.weights.a", "found 0, expected a whole number"),
        (
            "fair: {rate: 5/s, reserve: {critical: 5%}}",
            "fair.reserve",
            "needs slots, and requests are started at a rate",
        ),
        ("fair: {slots: 5}, share_by: tier", "share_by", "a rule with fair has it there"),
        (
            "fair: {slots: 5}, cost: {after: {bytes: true}}",
            "cost",
            "nothing can be charged afterwards: the request has left",
        ),
        ("limit: 5/s, adaptive: {}", "adaptive.floor", "missing; expected a share of the limits"),
        ("limit: 5/s, adaptive: true", "adaptive", "found true, expected the effect of pressure"),
        (
            "shape: {rate: 1/century, queue: 1}",
            "shape.rate",
            "not a rate, at character 3: 'century' does not belong here",
        ),
        (
            "shape: {rate: 1/52w, queue: 1}, cost: 500",
            "cost",
            "a request costs 500, above the limit of 100: it can never pass",
        ),
    ],
)
def test_what_cannot_be_is_refused_where_it_stands(written: str, field: str, message: str) -> None:
    rule, problems = read(written)
    assert rule is None
    (problem,) = problems
    assert (problem.severity, problem.rule, problem.field) == ("error", "a", field)
    assert problem.message[: len(message)] == message
    assert problem.line == 5
    assert problem.column is not None


@pytest.mark.parametrize(
    ("written", "field", "message"),
    [
        (
            "limit: 5/s, adaptive: {floor: 100%}",
            "adaptive.floor",
            "it has no effect: the limits are",
        ),
        (
            "shape: {rate: 5/s, queue: 1}, accuracy: {batch: 9}",
            "accuracy",
            "it has no effect: queues",
        ),
        ("concurrency: 5, accuracy: {batch: 9}", "accuracy", "it has no effect: slots are always"),
        (
            "shape: {rate: 5/s, queue: 1}, across_regions: true",
            "across_regions",
            "it has no effect: queues are always given in each region alone",
        ),
        (
            "shape: {rate: 5/s, queue: 1}, decide: local",
            "decide",
            "it has no effect: gateways cannot delay",
        ),
        (
            "shape: {rate: 1/s, queue: 5, max_wait: 10ms}",
            "shape",
            "no request ever waits: at 1 a second",
        ),
        (
            "concurrency: {limit: 5, share_by: tier}",
            "concurrency.share_by",
            "it has no effect: there are no shares",
        ),
        (
            f"concurrency: {{limit: 20, reserve: {{critical: 20%}}, {SHARES}: {{a: 90%}}}}",
            "concurrency.reserve",
            "the reserve leaves 16 of 20 slots, and 18 are guaranteed",
        ),
        ("fair: {slots: 5}, mode: shadow", "mode", "it switches the rule off"),
        ("fair: {slots: 5}, accuracy: {batch: 9}", "accuracy", "it has no effect: requests wait"),
        ("fair: {slots: 5}, idempotency: true", "idempotency", "it has no effect: a retry waits"),
        ("fair: {slots: 5}, across_regions: true", "across_regions", "it has no effect: requests"),
        (
            "fair: {slots: 5}, decide: exact",
            "decide",
            "it has no effect: requests wait in ap",
        ),
        (
            "shape: {rate: 5/s, queue: 3}, idempotency: true",
            "idempotency",
            "it has no effect where there is a queue: a retry waits",
        ),
        (
            "fair: {slots: 5}, on_store_failure: local",
            "on_store_failure",
            "it has no effect: reque",
        ),
        (
            "fair: {slots: 5}, adaptive: {floor: 5%}",
            "adaptive",
            "it has no effect: it has no limit",
        ),
        (
            "fair: {slots: 5, queue: 0, max_wait: 2s}",
            "fair.max_wait",
            "it has no effect: with a qu",
        ),
        (
            "fair: {slots: 5, weights: {paid: 2}}, match: {tier: free}",
            "fair.weights",
            "the rule is not for the tier 'paid' in its weights",
        ),
    ],
)
def test_what_has_no_effect_is_warned_of(written: str, field: str, message: str) -> None:
    rule, problems = read(written)
    assert rule is not None
    (problem,) = problems
    assert (problem.severity, problem.rule, problem.field) == ("warning", "a", field)
    assert problem.message[: len(message)] == message


@pytest.mark.parametrize(
    "written",
    [
        "shape: {rate: 5/s, queue: 1}, on_store_failure: local, headers: off",
        "shape: {rate: 5/s, queue: 1}, decide: exact, cost: 50, adaptive: {floor: 5%}",
        "shape: {rate: 5/s, queue: 1}, cost: {after: {bytes: true}}",
        "concurrency: {limit: 9, reserve: {critical: 5%}}, adaptive: {floor: 5%}, mode: shadow",
        "fair: {slots: 5}, cost: {endpoints: {/x: 5}}, headers: redacted, mode: enforce",
        "limits: [5/s, {algorithm: leaky_queue, rate: 5/s, queue: 5}], accuracy: {batch: 9}",
    ],
)
def test_what_goes_together_goes_without_a_word(written: str) -> None:
    good(written)


def test_two_rules_with_different_turns_are_no_twins() -> None:
    text = "version: 1\nrules:\n" + "".join(
        f"  - {{id: r{slots}, key_by: ip, fair: {{slots: {slots}}}}}\n" for slots in (5, 6)
    )
    assert examine_policy(text).problems == ()
    assert (
        "the same match" in examine_policy(text.replace("slots: 6", "slots: 5")).problems[0].message
    )


def test_a_misspelt_field_of_a_queue_is_told_of_once() -> None:
    rule, problems = read("shape: {rate: 5/s, que: 3}")
    assert rule is None
    (problem,) = problems
    assert (problem.field, problem.message) == ("shape.que", "unknown field")
