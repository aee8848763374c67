"""The view that shows callers their limits."""

from __future__ import annotations

from headgate.integrations.django import status
from headgate.policy.loader import read_policy
from tests.support.django_project import fine, get, project, statuses, statuses_async

POLICY = read_policy(
    """
version: 1
rules:
  - {id: each, match: {endpoint: /a}, key_by: [ip, endpoint], limit: 5/minute}
  - {id: all, match: {}, key_by: ip, limit: 9/minute}
"""
)


def test_it_shows_every_limit_and_consumes_none() -> None:
    with project({"rate_limit": status, "a/": fine}, policy=POLICY, limits="3/minute") as client:
        get(client, "/a/")
        for _ in range(5):
            response = get(client, "/rate_limit")
        assert response.status_code == 200
        assert response.headers["Content-Type"] == "application/json"
        assert response.headers["Cache-Control"] == "no-store"
        left = {one["name"]: one["remaining"] for one in response.json()["limits"]}
        assert left == {"each": 4, "all": 8, "default": 2}


def test_who_has_nothing_left_may_still_look() -> None:
    with project({"rate_limit": status, "a": fine}, limits="1/minute") as client:
        assert statuses(client, "/a", 2) == [200, 429]
        assert get(client, "/rate_limit").json()["limits"][0]["remaining"] == 0
        assert client.head("/rate_limit").status_code == 200
        assert client.post("/rate_limit").status_code == 405
        assert statuses_async("/rate_limit", 3) == [200] * 3
