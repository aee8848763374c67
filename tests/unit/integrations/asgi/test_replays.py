"""The response to a free retry is marked, with whatever else it says."""

from __future__ import annotations

import pytest

from headgate.integrations import RequestLimiter
from headgate.integrations.asgi import RateLimitMiddleware
from headgate.policy.loader import read_policy_data
from headgate.testing import ManualClock
from tests.support.asgi_connection import Answering, drive_all, http

REPLAYED = "idempotency-replayed"


def replays(*rules: dict[str, object]) -> list[str | None]:
    """The mark of the responses to four requests with one key."""
    policy = read_policy_data({"version": 1, "rules": [{"key_by": "ip", **one} for one in rules]})
    app = RateLimitMiddleware(Answering(), RequestLimiter(policy=policy, clock=ManualClock()))
    request = http(headers=[(b"idempotency-key", b"k")])
    responses = drive_all(app, *[request] * 4)
    assert all(one.status == 200 for one in responses)
    return [one.headers.get(REPLAYED) for one in responses]


@pytest.mark.parametrize("others", [[], [{"id": "each", "limit": "9/hour"}]])
def test_free_retries_are_marked_and_no_others(others: list[dict[str, object]]) -> None:
    once: dict[str, object] = {"id": "once", "limit": "9/hour", "idempotency": {"retries": 2}}
    assert replays(once, *others) == [None, "true", "true", None]
    assert replays({**once, "headers": "brief"}, *others) == [None, "true", "true", None]


@pytest.mark.parametrize("mode", ["off", "redacted"])
def test_a_rule_that_is_not_told_marks_nothing(mode: str) -> None:
    hidden = {"id": "once", "limit": "9/hour", "idempotency": True, "headers": mode}
    assert replays(hidden) == [None] * 4
