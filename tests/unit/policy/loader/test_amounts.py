"""Limits: three forms, one meaning."""

from typing import Any

import pytest

from headgate.limits import (
    GCRA,
    Concurrency,
    FixedWindow,
    LeakyBucket,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
    parse_limit,
)
from headgate.policy.loader import examine_policy_data
from headgate.policy.model import Rule
from headgate.policy.problems import Problem
from tests.support.policy_files import only_error, read_rule


def read(**fields: Any) -> Rule:
    return read_rule({"key_by": "ip", **fields})


def refused(**fields: Any) -> Problem:
    return only_error({"key_by": "ip", **fields})


def warnings(**fields: Any) -> list[str]:
    data = {"version": 1, "rules": [{"id": "a", "key_by": "ip", **fields}]}
    return [f"{problem.field}: {problem.message}" for problem in examine_policy_data(data).problems]


LONG_AND_SHORT: list[tuple[dict[str, Any], str, Limit]] = [
    (
        {"algorithm": "token_bucket", "capacity": 200, "refill_rate_per_sec": 100},
        "100/s burst 200",
        TokenBucket(200, 100),
    ),
    (
        {"algorithm": "token_bucket", "capacity": 100, "refill_rate_per_sec": 1.6666666666666667},
        "100/minute",
        TokenBucket(100, 100 / 60),
    ),
    (
        {"algorithm": "gcra", "rate_per_sec": 0.5, "burst": 30},
        "30/minute gcra",
        GCRA(0.5, 30),
    ),
    (
        {"algorithm": "leaky_bucket", "capacity": 5, "leak_rate_per_sec": 5},
        "5/s leaky_bucket",
        LeakyBucket(5, 5),
    ),
    (
        {"algorithm": "fixed_window", "limit": 1000, "window": "1 day"},
        "1000/day fixed_window",
        FixedWindow(1000, 86_400),
    ),
    (
        {"algorithm": "sliding_window_log", "limit": 5, "window": 60},
        "5/minute sliding_window_log",
        SlidingWindowLog(5, 60),
    ),
    (
        {"algorithm": "sliding_window_counter", "limit": 5, "window": "1.5h", "subwindows": 6},
        "5/1.5h sliding_window_counter subwindows 6",
        SlidingWindowCounter(5, 5_400, 6),
    ),
    (
        {"algorithm": "sliding_window_counter", "limit": 5, "window": "30s"},
        "5/30s sliding_window_counter",
        SlidingWindowCounter(5, 30),
    ),
]


@pytest.mark.parametrize(("long", "short", "limit"), LONG_AND_SHORT)
def test_the_long_and_the_short_form_mean_the_same(
    long: dict[str, Any], short: str, limit: Limit
) -> None:
    assert parse_limit(short) == limit
    wanted = {None: (limit,)}
    assert read(**long).limits == wanted
    assert read(limit=short).limits == wanted
    assert read(limits=[short]).limits == wanted
    assert read(limits=[long]).limits == wanted
    assert read(limits=long).limits == wanted
    assert read(limits={"default": long}).limits == wanted
    assert read(limits={"free": long}).limits == {"free": (limit,)}
    assert read(limits={"free": [short]}).limits == {"free": (limit,)}


def test_slots_have_a_long_form() -> None:
    long = {"algorithm": "concurrency", "limit": 5, "ttl": "30s"}
    assert read(**long).limits == {None: (Concurrency(5, 30),)}
    assert read(limits=[long, "9/s"]).limits == {None: (Concurrency(5, 30), TokenBucket(9, 9))}


def test_limits_are_stacked_by_semicolons_and_by_lists() -> None:
    stacked = {None: (TokenBucket(9, 9), FixedWindow(100, 3600))}
    assert read(limit="9/s; 100/h fixed_window").limits == stacked
    assert read(limits=["9/s", "100/h fixed_window"]).limits == stacked
    assert read(limits=["9/s; 100/h fixed_window"]).limits == stacked
    assert read(limits="9/s; 100/h fixed_window").limits == stacked


def test_the_default_tier_is_that_of_everybody_else() -> None:
    rule = read(limits={"paid": "9/s", "default": "1/s"})
    assert rule.limits_for("paid") == (TokenBucket(9, 9),)
    assert rule.limits_for("other") == rule.limits_for(None) == (TokenBucket(1, 1),)


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({}, "limit", "a rule has limits in one form; found none"),
        ({"limit": "1/s", "limits": ["1/s"]}, "limit", "a rule has limits in one form; found"),
        (
            {"limits": ["1/s"], "algorithm": "gcra", "burst": 1, "rate_per_sec": 1},
            "limit",
            "a rule has limits in one form; found limits and algorithm",
        ),
        ({"limit": 100}, "limit", "not a limit, at character 4: the limit ends too early"),
        ({"limit": "100"}, "limit", "not a limit, at character 4: the limit ends too early"),
        ({"limit": "-1/s"}, "limit", "not a limit, at character 1: "),
        ({"limit": None}, "limit", "found nothing, expected a limit such as 100/minute"),
        ({"limit": True}, "limit", "found true, expected a limit such as 100/minute"),
        ({"limit": ["1/s"]}, "limit", "found a list, expected a limit such as 100/minute"),
        ({"limits": []}, "limits", "found a list, expected a limit such as 100/minute"),
        ({"limits": {}}, "limits", "found a mapping, expected a limit for at least one tier"),
        ({"limits": None}, "limits", "found nothing, expected a limit"),
        ({"limits": [["1/s"]]}, "limits[0]", "found a list, expected a limit"),
        ({"limits": [{}]}, "limits[0].algorithm", "missing; expected one of token_bucket"),
        (
            {"limits": {"a": {"algorithm": "gcra", "burst": 1, "rate_per_sec": 1, "x": 1}}},
            "limits.a.x",
            "unknown field",
        ),
        ({"limits": {"": "1/s"}}, "limits['']", "found an empty text, expected the name of a"),
        ({"limits": ["1/s"] * 17}, "limits", "17 limits for one caller; expected at most 16"),
        ({"algorithm": "tokenbucket"}, "algorithm", "found 'tokenbucket'"),
        ({"capacity": 5}, "algorithm", "missing; expected one of token_bucket"),
        (
            {"algorithm": "token_bucket", "capacity": 5},
            "refill_rate_per_sec",
            "missing; expected the refill_rate_per_sec of a token_bucket",
        ),
        (
            {"algorithm": "fixed_window", "limit": "5/s", "window": 1},
            "limit",
            "found '5/s', expected a whole number from 1",
        ),
        (
            {"algorithm": "fixed_window", "limit": 0, "window": 1},
            "limit",
            "found 0, expected a whole number from 1",
        ),
        (
            {"algorithm": "fixed_window", "limit": 5, "window": "5 parsecs"},
            "window",
            "'5 parsecs' is not a time: 'parsecs' does not belong here",
        ),
        (
            {"algorithm": "fixed_window", "limit": 5, "window": 1e12},
            "window",
            "found 1000000000000 seconds; expected from a microsecond to a hundred years",
        ),
        (
            {"algorithm": "fixed_window", "limit": 5, "window": "1s burst 3"},
            "window",
            "found '1s burst 3', expected seconds, or a time such as 30s",
        ),
        (
            {"algorithm": "gcra", "burst": 5, "rate_per_sec": 0},
            "rate_per_sec",
            "found 0, expected a number of units per second, above 0",
        ),
        (
            {"algorithm": "gcra", "burst": 5, "rate_per_sec": 1e-15},
            "",
            "rate is 1e-15: 5 would take more than a hundred years",
        ),
        (
            {"algorithm": "gcra", "burst": 5, "rate_per_sec": 1, "window": 5},
            "window",
            "gcra has no window; it has rate_per_sec, burst",
        ),
        (
            {"algorithm": "sliding_window_counter", "limit": 5, "window": 1, "subwindows": 1001},
            "subwindows",
            "found 1001, expected a whole number from 1 to 1000",
        ),
    ],
)
def test_a_wrong_limit_is_told(fields: dict[str, Any], field: str, message: str) -> None:
    problem = refused(**fields)
    assert problem.field == field
    assert problem.message.startswith(message)


def test_a_large_log_is_warned_of() -> None:
    told = "a log of 10001 entries for each key is heavy on memory and on the store"
    assert warnings(limit="10000/h sliding_window_log") == []
    assert warnings(limit="10001/h sliding_window_log") == [f"rules[0].limit: {told}"]
    long = {"algorithm": "sliding_window_log", "limit": 10_001, "window": 1}
    assert warnings(**long) == [f"rules[0].limit: {told}"]


def test_the_same_limit_twice_is_warned_of() -> None:
    assert warnings(limits=["60/m", "60/m"]) == ["rules[0].limits: the same limit is given twice"]
