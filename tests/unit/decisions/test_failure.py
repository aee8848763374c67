"""What is decided when no store can."""

import pytest

from headgate import TokenBucket
from headgate.decision import checked_policy, decide_without_store

ASKED = [("a", TokenBucket(10, 1)), ("b", TokenBucket(5, 1))]


def test_open_allows_with_the_whole_quota() -> None:
    decision = decide_without_store("fail_open", ASKED)
    assert (decision.allowed, decision.remaining, decision.retry_after) == (True, 5, 0)
    assert [part.source for part in decision.limits] == ["fail_open", "fail_open"]
    assert decision.source == "fail_open"


def test_closed_refuses_and_names_a_time_to_come_back() -> None:
    decision = decide_without_store("fail_closed", ASKED)
    assert (decision.allowed, decision.remaining, decision.retry_after) == (False, 0, 1)
    assert decision.source == "fail_closed"


def test_only_known_policies_pass() -> None:
    assert checked_policy("fail_open") == "fail_open"
    assert checked_policy("fail_closed") == "fail_closed"
    with pytest.raises(ValueError, match="'Fail_Open'"):
        checked_policy("Fail_Open")
