"""Cookies and paths that servers read differently give no caller a fresh counter in an app."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest
from flask import Flask
from flask import request as flask_request
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from werkzeug.test import Client

from headgate.integrations import asgi, wsgi
from headgate.policy.loader import read_policy
from tests.support.asgi_connection import Answering, drive, http, statuses

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    Ask = Callable[[str], tuple[int, str]]

LIMIT = 3
POLICY = """
version: 1
rules: [{id: per-session, key_by: "cookie:sid", limit: 3/day}]
"""


def _starlette() -> Ask:
    async def whose(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.cookies.get("sid", ""))

    app = asgi.RateLimitMiddleware(
        Starlette(routes=[Route("/", whose)]), policy=read_policy(POLICY)
    )

    def ask(cookies: str) -> tuple[int, str]:
        reply = drive(app, http(headers=[(b"cookie", cookies.encode())]))
        return reply.status, reply.body.decode()

    return ask


def _flask() -> Ask:
    app = Flask(__name__)

    @app.get("/")
    def whose() -> str:
        return flask_request.cookies.get("sid", "")

    limited: Any = wsgi.RateLimitMiddleware(app, policy=read_policy(POLICY))

    def ask(cookies: str) -> tuple[int, str]:
        client = Client(limited, use_cookies=False)
        base = {"REMOTE_ADDR": "203.0.113.7"}
        reply = client.get("/", headers={"cookie": cookies}, environ_base=base)
        return reply.status_code, reply.text

    return ask


SPELLINGS = (
    "sid=own",
    "sid=r{n}; sid=own",
    "sid=own; sid=r{n}",
    'sid="own"; sid=r{n}',
    "sid=r{n}; sid=own; sid=",
    "sid=own; SID=r{n}",
    "sid=own,r{n}",
    "sid=%6fwn",
)


@pytest.mark.parametrize("make", [_starlette, _flask])
def test_a_session_is_not_used_more_often_than_its_limit(make: Callable[[], Ask]) -> None:
    ask = make()
    replies = [ask(one.format(n=n)) for n in range(4 * LIMIT) for one in SPELLINGS]
    served = Counter(session for status, session in replies if status == 200)
    assert served["own"]
    assert max(served.values()) <= LIMIT
    assert ask("sid=somebody") == (200, "somebody")


@pytest.mark.parametrize("make", [_starlette, _flask])
def test_spellings_of_one_session_share_its_counter(make: Callable[[], Ask]) -> None:
    ask = make()
    spellings = ["sid=own", 'sid="own"', 'sid="\\157wn"', "sid=own; sid=own", 'sid="o\\wn"']
    assert [ask(one)[0] for one in spellings] == [200] * LIMIT + [429] * 2


@pytest.mark.parametrize("spelling", ["/r{n}%23/../acct", "/r{n}%3f/../acct", "/r{n}//../acct"])
@pytest.mark.parametrize("endpoint", ["/acct", "/**"])
def test_an_ambiguous_path_has_no_fresh_counter(spelling: str, endpoint: str) -> None:
    rule = f"{{id: r, match: {{endpoint: '{endpoint}'}}, key_by: endpoint, limit: {LIMIT}/day}}"
    policy = read_policy(f"version: 1\nrules: [{rule}]")
    app = asgi.RateLimitMiddleware(Answering(), policy=policy)
    paths = [spelling.format(n=n) for n in range(2 * LIMIT)]
    scopes = [http(unquote(path), raw_path=path.encode()) for path in paths]
    assert statuses(app, *scopes) == [200] * LIMIT + [429] * LIMIT
    assert statuses(app, http("/acct")) == [429]


@pytest.mark.parametrize(
    "rule",
    [
        "{id: r, key_by: host, limit: 3/day}",
        "{id: r, match: {host: shop.example}, key_by: ip, limit: 3/day}",
        "{id: r, match: {host: '*.example'}, key_by: ip, limit: 3/day}",
    ],
)
@pytest.mark.parametrize("spelling", ["r{n}:x@shop.example", "shop.example:@::{n}"])
def test_a_malformed_host_has_no_fresh_counter(rule: str, spelling: str) -> None:
    app = asgi.RateLimitMiddleware(Answering(), policy=read_policy(f"version: 1\nrules: [{rule}]"))
    hosts = [spelling.format(n=n).encode() for n in range(2 * LIMIT)]
    scopes = [http(headers=[(b"host", host)]) for host in hosts]
    assert statuses(app, *scopes) == [200] * LIMIT + [429] * LIMIT
    assert statuses(app, http(headers=[(b"host", b"shop.example")])) == [429]
