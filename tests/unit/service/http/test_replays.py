"""The decision service marks free retries."""

from __future__ import annotations

import json

from tests.support.http_app import app_of, ask

POLICY = """
version: 1
rules: [{id: once, key_by: ip, limit: 9/hour, idempotency: {retries: 1}}]
"""


def test_a_check_and_an_authorization_of_a_free_retry_are_marked() -> None:
    app = app_of(POLICY)
    body = {"path": "/", "ip": "192.0.2.1", "headers": {"idempotency-key": "k"}}
    content = json.dumps(body).encode()
    lines = [("content-type", "application/json")]
    checks = [ask(app, "POST", "/v1/check", lines, content) for _ in range(3)]
    assert [one.headers.get("idempotency-replayed") for one in checks] == [None, "true", None]
    key = [("idempotency-key", "other"), ("x-forwarded-for", "192.0.2.1")]
    passed = [ask(app, "GET", "/v1/authorize/a", key) for _ in range(3)]
    assert [one.headers.get("idempotency-replayed") for one in passed] == [None, "true", None]
