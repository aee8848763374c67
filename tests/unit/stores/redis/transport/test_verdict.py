"""What is done about a request that was answered with an error."""

from __future__ import annotations

import pytest

from headgate.server_urls import Address
from headgate.stores.redis.transport.redirection import (
    MOST_DETOURS,
    Redirection,
    Refusal,
    Remedy,
    judge,
    pause,
)

NODE = Address("a", 1)


def test_an_unknown_script_is_sent_whole_and_not_for_ever() -> None:
    assert judge("NOSCRIPT No matching script", "a:1", 0) is Remedy.SEND_WHOLE
    verdict = judge("NOSCRIPT No matching script", "a:1", MOST_DETOURS)
    assert isinstance(verdict, Refusal)
    assert verdict.error.reason == "refused"


def test_a_node_of_a_cluster_may_send_elsewhere() -> None:
    assert judge("MOVED 7 b:2", "a:1", 0, node=NODE) == Redirection(7, Address("b", 2), False)
    assert judge("ASK 7 b:2", "a:1", 0, node=NODE) == Redirection(7, Address("b", 2), True)
    assert judge("TRYAGAIN", "a:1", 0, node=NODE) is Remedy.WAIT


def test_requests_are_not_sent_on_for_ever() -> None:
    verdict = judge("MOVED 7 b:2", "a:1", MOST_DETOURS, node=NODE)
    assert isinstance(verdict, Refusal)
    assert (verdict.error.reason, verdict.is_stale) == ("cluster_down", True)


@pytest.mark.parametrize("text", ["MOVED 7 b:2", "ASK 7 b:2", "TRYAGAIN", "ERR what"])
def test_a_single_server_has_nowhere_to_send_to(text: str) -> None:
    assert isinstance(judge(text, "a:1", 0), Refusal)


@pytest.mark.parametrize(
    ("text", "is_stale"),
    [("READONLY no", True), ("CLUSTERDOWN no", True), ("OOM no", False), ("ERR no", False)],
)
def test_a_server_that_is_no_primary_any_more_is_looked_for_anew(text: str, is_stale: bool) -> None:
    verdict = judge(text, "a:1", 0, node=NODE)
    assert isinstance(verdict, Refusal)
    assert verdict.is_stale is is_stale


def test_pauses_grow_with_the_time_spent() -> None:
    pauses = [pause(1.0, left) for left in (1.0, 0.9, 0.8, 0.5, 0.1)]
    assert pauses == sorted(pauses)
    assert pauses[0] == 0.01
    assert pauses[-1] == 0.1
