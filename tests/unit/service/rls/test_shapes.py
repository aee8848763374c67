"""Calls planned like an earlier one of the same shape have the plans of calls planned alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import pytest

from headgate.service.grpc.method import CallError
from headgate.service.rls import RlsOptions
from headgate.service.rls.calls import LARGEST_MESSAGE
from tests.support.rls_client import Asker, desc, request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.service.rls.descriptors import PlannedCall
    from headgate.service.rls.requests import Charging

WITHOUT_SHAPES = RlsOptions(longest_value=LARGEST_MESSAGE - 1)
"""The options under which no message is short enough to have a shape."""

RULES = {
    "free": "rules: [{id: r, key_by: 'attribute:a', limit: 2/m}]",
    "two limits": "rules: [{id: r, key_by: 'attribute:a', limits: [2/m, 3/h]}]",
    "two values": "rules: [{id: r, key_by: ['attribute:a', 'attribute:b'], limit: 2/m}]",
    "address": "rules: [{id: r, key_by: 'attribute:remote_address', limit: 2/m}]",
    "two rules": "rules: [{id: r, key_by: 'attribute:a', limit: 2/m},"
    " {id: s, key_by: ip, limit: 3/m}]",
    "matched": "rules: [{id: r, match: {attributes: {a: [x]}}, key_by: 'attribute:a', limit: 2/m}]",
    "matched by another": "rules: [{id: r, key_by: 'attribute:a', limit: 2/m},"
    " {id: s, match: {attributes: {a: [x]}}, key_by: global, limit: 9/m}]",
    "a header": "rules: [{id: r, match: {headers: {a: [x]}}, key_by: 'attribute:a', limit: 2/m}]",
    "a path": "rules: [{id: r, match: {endpoint: /x}, key_by: 'attribute:path', limit: 2/m}]",
    "a method": "rules: [{id: r, match: {method: X}, key_by: 'attribute:method', limit: 2/m}]",
    "a route": "rules: [{id: r, key_by: [endpoint, 'attribute:route'], limit: 2/m}]",
    "by address too": "rules: [{id: r, key_by: ['attribute:remote_address', ip], limit: 2/m}]",
    "missing": "rules: [{id: r, key_by: ['attribute:remote_address', 'attribute:c'], limit: 2/m}]",
    "by header too": "rules: [{id: r, key_by: ['attribute:a', 'header:a'], limit: 2/m}]",
    "a source": "identity: {team: {attribute: a}}\n"
    "rules: [{id: r, key_by: ['attribute:a', team], limit: 2/m}]",
    "a tier": "identity: {tier: {attribute: a, default: free}}\n"
    "rules: [{id: r, key_by: 'attribute:a', limits: {free: 1/m, x: 5/m, default: 2/m}}]",
    "a proxy": "identity: {ip: {trusted_proxies: [10.0.0.0/8], header: a}}\n"
    "rules: [{id: r, key_by: ['attribute:a', ip], limit: 2/m}]",
    "a cost": "rules: [{id: r, key_by: 'attribute:a', limit: 9/m, cost: {header: a, max: 3}}]",
    "a shadow": "rules: [{id: r, key_by: 'attribute:a', limit: 2/m, mode: shadow}]",
    "hidden": "rules: [{id: r, key_by: 'attribute:a', limit: 2/m, headers: off}]",
    "an override": "rules: [{id: r, key_by: 'attribute:a', limit: 2/m}]\n"
    "overrides: [{rule: r, key: 'attribute:a=z', extra: 5, until: '2030-01-01T00:00:00Z'}]",
    "adaptive": "rules: [{id: r, key_by: 'attribute:a', limit: 4/m, adaptive: {floor: 25%}}]",
}
KEYS = (
    ("a",),
    ("a", "b"),
    ("a", "a"),
    ("b", "remote_address"),
    ("path", "method"),
    ("path", "route"),
    ("a", "remote_address"),
)
VALUES = (
    "z",
    "x",
    "X",
    "",
    "a&b",
    "nobody.1",  # as long as the address that follows: all that are none are one caller
    "nobody.2",
    "10.0.0.1",
    "192.0.2.7",
    "192.0.2.9",
    "/x",
    "/y",
    "2",
    "é",
    "%7C",
)
ROUNDS = 3
"""A shape is noticed, learned, and used."""

CONFIGS = {
    "by key": "descriptors: [{key: a, rate_limit: {unit: minute, requests_per_unit: 2}}]",
    "below": """
descriptors:
  - key: a
    descriptors:
      - {key: b, rate_limit: {unit: minute, requests_per_unit: 2}}
      - {key: a, value: x, rate_limit: {unit: hour, requests_per_unit: 3}}
""",
    "a value": """
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: a, value: x, rate_limit: {unit: minute, requests_per_unit: 1}}
""",
    "a value in the key": """
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: a_x, rate_limit: {unit: minute, requests_per_unit: 1}}
""",
    "a pattern": """
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: a, value: 1*, rate_limit: {unit: minute, requests_per_unit: 1}}
""",
    "a shared pattern": """
descriptors:
  - key: a
    value: 1*
    share_threshold: true
    rate_limit: {unit: minute, requests_per_unit: 1}
""",
    "closed": "descriptors: [{key: a, rate_limit: {unit: minute, requests_per_unit: 0}}]",
    "unlimited": "descriptors: [{key: a, rate_limit: {unlimited: true}}]",
    "quota": """
descriptors:
  - {key: a, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
""",
    "shadow": """
descriptors:
  - {key: a, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
""",
}


def _assert_same(one: PlannedCall, other: PlannedCall) -> None:
    """They decide the same. (The call of a shape is that of its first message.)"""
    assert one.plan.plan == other.plan.plan
    assert one.plan.parts == other.plan.parts
    assert one.plan.each_alone is other.plan.each_alone
    assert one.lines == other.lines or one.lines[0].parts[0][1:] == other.lines[0].parts[0][1:]
    assert [place for place, _ in one.shown] == [place for place, _ in other.shown]
    assert one.is_configured is other.is_configured
    assert one.call.domain == other.call.domain


def _messages(domain: str, keys: tuple[str, ...], start: str) -> Iterator[bytes]:
    """Messages that differ in one value each."""
    first = [(key, start) for key in keys]
    for hits, (place, key), value in product((0, 2), enumerate(keys), VALUES):
        entries = [*first[:place], (key, value), *first[place + 1 :]]
        yield request(domain, desc(*entries), hits=hits)


@pytest.mark.parametrize("domain", ["edge", "headgate"])
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_a_shape_changes_no_plan(rules: str, domain: str) -> None:
    policy = f"version: 1\n{rules}\n"
    other = Asker(policy, options=WITHOUT_SHAPES)
    for keys, start in product(KEYS, ("x", "/x")):
        asker = Asker(policy)
        for message in [*_messages(domain, keys, start)] * ROUNDS:
            _assert_same(asker.calls._read(message), other.calls._read(message))


@pytest.mark.parametrize("charge", ["all_or_nothing", "always"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_shape_changes_no_plan_of_a_configuration(config: str, charge: Charging) -> None:
    config = f"domain: edge\n{config}"
    short = RlsOptions(charge=charge)
    other = Asker(envoy=config, options=replace(WITHOUT_SHAPES, charge=charge))
    for keys, start in product(KEYS, ("x", "1")):
        asker = Asker(envoy=config, options=short)
        for message in [*_messages("edge", keys, start)] * ROUNDS:
            _assert_same(asker.calls._read(message), other.calls._read(message))


@pytest.mark.parametrize("config", [None, f"domain: edge\n{CONFIGS['below']}"])
def test_a_message_that_is_changed_anywhere_is_planned_as_it_is(config: str | None) -> None:
    """The bytes of a known shape, with one that is changed, added or removed."""
    policy = f"version: 1\n{RULES['free']}\n"
    asker, other = Asker(policy, config), Asker(policy, config, options=WITHOUT_SHAPES)
    some = [request("edge", desc(("a", "z"), ("b", value))) for value in ("u1", "u2", "u3")]
    some += [request("edge", desc(("a", value), ("c", "z"))) for value in ("u1", "u2", "u3")]
    for message in some:
        asker.calls._read(message)
    for message, at in product((some[2], some[5]), range(len(some[0]))):
        for byte in (0, 1, 2, 3, 10, 18, 26, 97, 127, 128, 255):
            one = bytes([byte])
            for changed in (
                message[:at] + one + message[at + 1 :],
                message[:at] + one + message[at:],
                message[:at] + message[at + 1 :],
            ):
                try:
                    alone = other.calls._read(changed)
                except CallError:
                    with pytest.raises(CallError):
                        asker.calls._read(changed)
                else:
                    _assert_same(asker.calls._read(changed), alone)


@pytest.mark.parametrize("config", [None, f"domain: edge\n{CONFIGS['by key']}"])
def test_a_caller_not_seen_before_is_planned_like_another(config: str | None) -> None:
    asker = Asker(f"version: 1\n{RULES['free']}\n", config)
    lines = [asker.calls._read(request("edge", desc(f"a={n}"))).lines for n in range(5)]
    assert lines[1] is lines[2] is lines[3] is lines[4]
    assert [asker.code("edge", desc("a=ada")) for _ in range(3)] == [1, 1, 2]
