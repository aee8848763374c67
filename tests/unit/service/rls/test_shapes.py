"""Calls planned like an earlier one of the same shape have the plans of calls planned alone."""

from __future__ import annotations

from itertools import product

import pytest

from headgate.service.rls import RlsOptions
from headgate.service.rls.calls import LARGEST_MESSAGE
from tests.support.rls_client import Asker, desc, request

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
VALUES = ("z", "x", "X", "", "a&b", "10.0.0.1", "192.0.2.7", "/x", "/y", "2")


@pytest.mark.parametrize("domain", ["edge", "headgate"])
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_a_shape_changes_no_plan(rules: str, domain: str) -> None:
    policy = f"version: 1\n{rules}\n"
    other = Asker(policy, options=WITHOUT_SHAPES)
    for keys, start in product(KEYS, ("z", "x", "/x")):
        asker = Asker(policy)
        first = [(key, start) for key in keys]
        changed = [
            [*first[:place], (key, value), *first[place + 1 :]]
            for place, key in enumerate(keys)
            for value in VALUES
        ]
        for hits, entries in product((0, 2), changed):
            message = request(domain, desc(*entries), hits=hits)
            planned, alone = asker.calls._read(message), other.calls._read(message)
            assert planned.plan.plan == alone.plan.plan, entries


def test_a_caller_not_seen_before_is_planned_like_another() -> None:
    asker = Asker(f"version: 1\n{RULES['free']}\n")
    lines = [asker.calls._read(request("edge", desc(f"a={n}"))).lines for n in range(3)]
    assert lines[0] is lines[1] is lines[2]
    assert [asker.code("edge", desc("a=ada")) for _ in range(3)] == [1, 1, 2]
