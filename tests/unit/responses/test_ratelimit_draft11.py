"""The IETF's pair of headers, by example."""

from __future__ import annotations

from typing import TYPE_CHECKING

import http_sf
import pytest

from headgate.errors import OptionError
from headgate.limits import (
    GCRA,
    Concurrency,
    FixedWindow,
    LeakyBucket,
    LeakyQueue,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)
from headgate.responses import headers_for, limit_template
from headgate.responses.ratelimit_draft11 import names_in, policy_item, quoted, without_policies
from tests.support.decisions import NOW, answer, decided, refused, told

if TYPE_CHECKING:
    from headgate.decision import Decision

POLICIES = [
    (TokenBucket(100, 100 / 60), "q=100;w=60"),
    (TokenBucket(50, 10), "q=50;w=5"),
    (TokenBucket(100, 1.67), "q=100;w=60"),  # 59.88 seconds: as good as a minute
    (TokenBucket(5, 20), "q=20;w=1;hg-burst=5"),
    (GCRA(1000, 1), "q=1000;w=1;hg-burst=1"),
    (LeakyBucket(7, 2), "q=8;w=4;hg-burst=7"),
    (FixedWindow(1000, 86_400), "q=1000;w=86400"),
    (LeakyQueue(1, 59), "q=60;w=60;hg-queue=59"),
    (LeakyQueue(10, 100), "q=110;w=11;hg-queue=100"),
    (LeakyQueue(10, 100, 5), "q=60;w=6;hg-queue=50"),
    (LeakyQueue(1000, 0), "q=1000;w=1;hg-queue=0"),
    (SlidingWindowLog(5, 60), "q=5;w=60"),
    (SlidingWindowCounter(5, 0.1), "q=50;w=1;hg-burst=5"),
    (TokenBucket(10**15 - 1, 10**15 - 1), "q=999999999999999;w=1"),
    (TokenBucket(10**15 - 1, 9 * 10**14), "q=999999999999999;w=2"),
    (FixedWindow(3, 36_525 * 86_400), "q=3;w=3155760000"),
    (Concurrency(20, 30), 'q=20;qu="concurrent-requests"'),
]


@pytest.mark.parametrize(("limit", "expected"), POLICIES, ids=str)
def test_a_policy_says_how_much_in_how_many_seconds(limit: Limit, expected: str) -> None:
    assert policy_item("p", limit) == f'"p";{expected}'


STATES = [
    # as new, or so little used that nothing can come back
    (decided("100/minute", left=100, reset_ms=0), "r=100"),
    # a bucket: one unit every 0.6 seconds, 58 of them out
    (decided("100/minute", left=42, reset_ms=34_800), "r=42;t=1"),
    (decided("1/minute", left=0, reset_ms=60_000), "r=0;t=60"),
    (decided("6/minute", left=2, reset_ms=39_001), "r=2;t=10"),
    # a bucket in debt for two whole quotas
    (refused("6/minute", retry_ms=70_000, reset_ms=120_000), "r=0;t=70"),
    (refused("6/minute", retry_ms=None, reset_ms=5_000), "r=0;t=1"),
    # windows
    (decided("100/minute fixed_window", left=42, reset_ms=11_001), "r=42;t=12"),
    (refused("100/minute fixed_window", retry_ms=500, reset_ms=60_500), "r=0;t=1"),
    (decided("5/minute sliding_window_log", left=1, reset_ms=59_000), "r=1;t=59"),
    (refused("5/minute sliding_window_log", retry_ms=3_000, reset_ms=59_000), "r=0;t=3"),
    # slots
    (decided(Concurrency(20, 30), left=19, reset_ms=30_000), "r=19"),
    (refused(Concurrency(20, 30), retry_ms=9_000, reset_ms=30_000), "r=0"),
    # what no header can hold
    (refused("1/s", retry_ms=10**24, reset_ms=10**24), "r=0;t=999999999999999"),
]


@pytest.mark.parametrize(("decision", "expected"), STATES, ids=lambda it: str(it)[:60])
def test_what_is_left_and_when_the_next_unit_comes_back(decision: Decision, expected: str) -> None:
    assert limit_template("p", decision.limit).item(decision) == f'"p";{expected}'


def test_several_policies_are_a_list() -> None:
    stack = told(decided(), decided("1000/day fixed_window", left=7), name="a")
    found = dict(headers_for(answer(stack), now_ns=NOW))
    assert found["RateLimit-Policy"] == '"a";q=100;w=60, "a/2";q=1000;w=86400'
    assert found["RateLimit"] == '"a";r=42;t=12, "a/2";r=7;t=12'


def test_a_window_that_outlasts_retry_after_is_not_told() -> None:
    day, second = decided(reset_ms=40_000_000), refused("1/s", retry_ms=900)
    found = dict(headers_for(answer(told(day, name="day"), told(second, name="s")), now_ns=NOW))
    assert found["RateLimit"] == '"day";r=42, "s";r=0;t=1'


@pytest.mark.parametrize("name", ["plain", 'with "quotes"', "back\\slash", "", "~ !", '\\"'])
def test_any_printable_ascii_is_a_string_and_comes_back_as_it_was(name: str) -> None:
    field = f"{quoted(name)};r=1"
    assert http_sf.parse(field.encode(), tltype="list") == [(name, {"r": 1})]
    assert names_in(field) == {name}


@pytest.mark.parametrize("name", ["naïve", "two\nlines", "tab\t", "\x7f", "\N{SNOWMAN}"])
def test_what_is_not_printable_ascii_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match="printable ASCII"):
        quoted(name)


def test_items_are_told_apart_by_name_whatever_their_parameters_contain() -> None:
    line = '"a";q=1;x="b, \\"c\\"", "b";q=2 , "c";q=3'
    assert names_in(line) == {"a", "b", "c"}
    assert without_policies(line, {"b"}) == '"a";q=1;x="b, \\"c\\"", "c";q=3'
    assert without_policies(line, {"a", "b", "c"}) == ""


@pytest.mark.parametrize("line", ["", ",", '"', '"a', '"a\\', "100;w=60", "((", '"a"' * 50])
def test_a_line_that_is_no_list_of_strings_does_no_harm(line: str) -> None:
    assert isinstance(without_policies(line, {"z"}), str)
    assert names_in(line) <= {"a"}
