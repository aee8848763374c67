"""Random damage to a good policy: it is read or refused, and what is read decides requests."""

import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.engine.request import Request
from headgate.policy.loader import (
    Examined,
    examine_policy,
    examine_policy_data,
    policy_to_data,
    read_policy_data,
)
from headgate.policy.model import Policy
from headgate.policy.problems import PolicyError
from headgate.rule_engine import RuleEngine
from headgate.testing import ManualClock
from tests.support.fuzzing import Changes, bounded, changed, changes, fuzz_count, paths_in, replaced

GOOD = """\
version: 1
identity:
  api_key: {header: x-api-key}
  tier: {lookup: api_key, values: {key-1: paid, "2": free}, default: free}
  ip: {trusted_proxies: [10.0.0.0/8], ipv6_prefix: 64}
  fallback: shared
rules:
  - id: login
    match: {endpoint: [/login, "/a/*"], method: POST, headers: {x-a: true, x-b: [c, 1]}}
    key_by: [ip, "header:x-b"]
    limit: 5/minute sliding_window_log; 9/h
    mode: off
  - id: long
    algorithm: token_bucket
    capacity: 1_00
    refill_rate_per_sec: 1.67
    key_by: api_key
    idempotency: {ttl: 1 hour}
    cost: {default: 2, after: {header: x-tokens, per: 10, max: 50}}
    decide: exact
  - id: tiers
    key_by: &who [tier, endpoint]
    limits: {free: 10/s, default: [{algorithm: concurrency, limit: 12, ttl: 30s}]}
    cost: {default: 1, endpoints: {"POST /export": 10}, header: x-cost, max: 9}
    accuracy: {max_overshoot: 1%}
    headers: redacted
  - id: queue
    key_by: ip
    shape: {rate: 10/s, queue: 5, max_wait: 2s}
  - id: slots
    key_by: global
    concurrency: {limit: 20, share_by: tier, shares: {paid: 40%, free: 2}, reserve: {critical: 9%}}
  - id: turns
    key_by: ip
    fair: {slots: {adaptive: aimd, min: 2, max: 9}, weights: {paid: 4, default: 1}, max_wait: 1s}
  - {id: credits, key_by: ip, limit: 5/s peak 50/s for 3s, adaptive: {floor: 20%}}
priority:
  - {class: critical, match: {endpoint: /pay, tier: paid}}
pressure: {latency: 500ms, quantile: 99%, errors: 5%, least: 20%}
"""
DATA: Any = policy_to_data(examine_policy(GOOD).policy)  # type: ignore[arg-type]
AS_JSON = json.dumps(DATA, indent=1)
PIECES = [
    *(
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "- ",
        "\n",
        "  ",
        "\t",
        "#",
        "&a ",
        "*a",
        "!x ",
        "? ",
        "|",
        ">",
    ),
    *(
        "'",
        '"',
        "\\",
        "\0",
        "\ufeff",
        "\u2028",
        "<<: ",
        "---\n",
        "%",
        "@",
        "1e999",
        "-",
        "~",
        "true",
    ),
    *("0x1", "1_0", "5:30", "{a: ", "off", "**", "/", ";", "burst", "\ud800", "é", "9" * 200),
]
VALUES: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["ip", "5/s", "/a", "off", "global", "token_bucket", "1%", "30s"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "limit", "header", "default", "x", "algorithm", "max"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


REQUESTS = (
    Request(),
    Request(
        "POST",
        "/a/b;c/../%2e/login/",
        "x",
        (("x-api-key", "key-1"), ("x-cost", "9" * 30), ("cookie", "a=1; a=2"), ("x-b", "c")),
        "192.0.2.1",
        {"user_id": "ada"},
    ),
    Request("", "", "\udcff", (("x-api-key", "\0\udcff"), ("x-cost", "-1")), "no address"),
)


def check(examined: Examined) -> None:
    """Errors and a policy exclude each other, and all that is told can be printed."""
    errors = [problem for problem in examined.problems if problem.severity == "error"]
    assert (examined.policy is None) == bool(errors)
    assert all(str(problem).isprintable() for problem in examined.problems)
    if examined.policy is not None:
        assert read_policy_data(policy_to_data(examined.policy)) == examined.policy
        decide(examined.policy)


def decide(policy: Policy) -> None:
    """Decide and explain requests by *policy*; none may raise."""
    engine = RuleEngine(policy, clock=ManualClock())
    for request in REQUESTS:
        verdict = engine.check(request)
        engine.release(verdict)
        engine.explain(request).all()
    engine.close()


@settings(max_examples=fuzz_count(300))
@given(changes(len(GOOD), st.sampled_from(PIECES)))
def test_damaged_text_is_read_or_refused(several: Changes) -> None:
    with bounded():
        check(examine_policy(changed(GOOD, several)))


@settings(max_examples=fuzz_count(300))
@given(changes(len(AS_JSON), st.sampled_from(PIECES)))
def test_damaged_json_is_read_or_refused(several: Changes) -> None:
    with bounded():
        check(examine_policy(changed(AS_JSON, several), where="rules.json"))


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8")))
@example(b"\xef\xbb\xbf")
@example(b"\xff\xfe")
@example(b'{"version": 1' + b"}" * 9)
def test_noise_is_refused(noise: bytes) -> None:
    with bounded():
        check(examine_policy(noise))


@settings(max_examples=fuzz_count(300))
@given(st.sampled_from(paths_in(DATA)[1:]), VALUES)
def test_data_with_anything_anywhere_is_read_or_refused(path: tuple[Any, ...], value: Any) -> None:
    with bounded():
        check(examine_policy_data(replaced(DATA, path, value)))


@given(st.sampled_from(paths_in(DATA)[1:]), st.sampled_from(paths_in(DATA)[1:]))
def test_parts_in_the_wrong_place_are_read_or_refused(
    path: tuple[Any, ...], source: tuple[Any, ...]
) -> None:
    part = DATA
    for step in source:
        part = part[step]
    with bounded():
        check(examine_policy_data(replaced(DATA, path, part)))


@given(VALUES)
def test_any_data_is_read_or_refused(data: Any) -> None:
    with bounded():
        check(examine_policy_data(data))
    try:
        read_policy_data({"version": 1, "rules": [data]})
    except PolicyError as error:
        assert error.errors
