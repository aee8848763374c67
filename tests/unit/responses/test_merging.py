"""Our headers among others."""

import pytest

from headgate.responses import merged


def test_what_is_not_ours_stays_as_and_where_it_was() -> None:
    existing = [("Set-Cookie", "a"), ("content-type", "text/html"), ("Set-Cookie", "b")]
    assert merged(existing, [("Retry-After", "1")]) == [*existing, ("Retry-After", "1")]


def test_ours_replaces_the_same_name_in_any_case_however_often() -> None:
    existing = [("x-ratelimit-limit", "5"), ("A", "b"), ("X-RateLimit-Limit", "6")]
    ours = [("X-RateLimit-Limit", "100")]
    assert merged(existing, ours) == [("A", "b"), *ours]


def test_policies_of_a_server_behind_us_stay() -> None:
    existing = [("ratelimit", '"origin";r=5;t=1'), ("RateLimit-Policy", '"origin";q=5;w=1')]
    ours = [("RateLimit-Policy", '"edge";q=9;w=1'), ("RateLimit", '"edge";r=9')]
    assert merged(existing, ours) == existing + ours


def test_a_policy_that_we_speak_of_is_not_spoken_of_twice() -> None:
    existing = [("RateLimit", '"edge";r=1;t=1, "origin";r=5;t=1'), ("RateLimit", '"edge";r=2')]
    ours = [("RateLimit", '"edge";r=9')]
    assert merged(existing, ours) == [("RateLimit", '"origin";r=5;t=1'), *ours]


def test_queues_of_a_server_behind_us_stay() -> None:
    existing = [("headgate-queue", '"origin";waiting=5, "edge";waiting=1')]
    ours = [("Headgate-Queue", '"edge";waiting=9')]
    assert merged(existing, ours) == [("headgate-queue", '"origin";waiting=5'), *ours]


@pytest.mark.parametrize("name", ["endpoint-load-metrics", "Endpoint-Load-Metrics-Bin"])
def test_the_load_that_an_app_reports_itself_stays(name: str) -> None:
    ours = [("Retry-After", "1"), ("endpoint-load-metrics", "JSON {}")]
    assert merged([(name, "its own")], ours) == [(name, "its own"), ("Retry-After", "1")]


def test_merging_twice_is_merging_once() -> None:
    ours = [("X-RateLimit-Limit", "1"), ("RateLimit", '"a";r=1'), ("RateLimit-Policy", '"a";q=1')]
    once = merged([("A", "b"), ("RateLimit", '"z";r=1')], ours)
    assert merged(once, ours) == once


def test_with_nothing_of_ours_nothing_changes() -> None:
    assert merged([("RateLimit", "garbage (")], []) == [("RateLimit", "garbage (")]
