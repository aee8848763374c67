"""An app with rules answers 414 to a path that is longer than what rules examine."""

from __future__ import annotations

from typing import Any

from flask import Flask
from werkzeug.test import Client

from headgate.integrations import asgi, wsgi
from headgate.integrations.flask import RateLimits
from headgate.policy.loader import read_policy
from tests.support.asgi_connection import Answering, drive, http

POLICY = read_policy(
    """
version: 1
rules: [{id: api, match: {endpoint: "/api/**"}, key_by: ip, limit: 9/s}]
"""
)
LONG = "/" + "x" * 8_192


def test_asgi() -> None:
    app = asgi.RateLimitMiddleware(Answering(), policy=POLICY)
    reply = drive(app, http(LONG))
    assert reply.status == 414
    assert b"path_too_long" in reply.body
    assert drive(app, http(LONG[:-1])).status == 200


def test_asgi_with_an_exempt_path_and_a_limit_of_its_own() -> None:
    app = asgi.RateLimitMiddleware(Answering(), policy=POLICY, limits="5/s", exempt=["/x*"])
    assert drive(app, http(LONG)).status == 414


def test_wsgi() -> None:
    app = Flask("app")
    app.add_url_rule("/<path:rest>", view_func=lambda rest: rest[:1])
    client = Client(wsgi.RateLimitMiddleware(app, policy=POLICY))
    assert client.get(LONG).status_code == 414
    assert client.get(LONG[:-1]).status_code == 200


def test_flask() -> None:
    app = Flask("app")
    app.add_url_rule("/<path:rest>", view_func=lambda rest: rest[:1])
    options: Any = {"policy": POLICY}
    RateLimits(app, **options)
    client = app.test_client()
    reply = client.get(LONG)
    assert reply.status_code == 414
    assert reply.json["error"] == "path_too_long"  # type: ignore[index]
    assert client.get(LONG[:-1]).status_code == 200
