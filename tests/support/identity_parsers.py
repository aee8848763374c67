"""Requests whose cookies and headers frameworks read differently, and the keys they are given."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from headgate.policy.compiled import CompiledPolicy
from headgate.policy.identity import hashed
from headgate.policy.loader import read_policy

if TYPE_CHECKING:
    from headgate.engine.request import Request

POLICY = """
version: 1
identity: {fallback: shared}
rules:
  - {id: session, key_by: "cookie:sid", limit: 1/s}
  - {id: user, key_by: "header:x-user", limit: 1/s}
"""
COMPILED = CompiledPolicy(read_policy(POLICY))
LINES = [
    [("cookie", "sid=a; sid=b")],
    [("cookie", "sid=b; x=1; sid=a")],
    [("cookie", "sid=a"), ("cookie", "sid=b")],
    [("cookie", "sid=vi%63tim")],
    [("cookie", 'sid="a\\\\142c"; SID=d')],
    [("cookie", 'sid="a;b"')],
    [("cookie", "sid=a, sid=b")],
    [("cookie", "sid=a b")],
    [("cookie", "sid=; sid=b")],
    [("cookie", "sid=a; sid=")],
    [("cookie", "SID=a")],
    [("cookie", "x=1")],
    [("x-user", "a"), ("x-user", "b")],
    [("x-user", "a,b")],
    [("x-user", " a ")],
    [("x-user", ""), ("X-User", "b")],
    [],
]
Reading = tuple["Request", str | None, str | None]
"""A view of a request, and its cookie and its header as its framework has them."""


def scope(lines: list[tuple[str, str]], **more: Any) -> dict[str, Any]:
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in lines]
    return {
        "type": "http",
        "method": "GET",
        "path": "/",
        "query_string": b"",
        "headers": headers,
        "client": ("1.2.3.4", 1),
        **more,
    }


def environ(lines: list[tuple[str, str]]) -> dict[str, Any]:
    """What gunicorn makes of *lines*."""
    found: dict[str, Any] = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": "/",
        "SERVER_NAME": "x",
        "SERVER_PORT": "80",
        "REMOTE_ADDR": "1.2.3.4",
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
    }
    for name, value in lines:
        key = f"HTTP_{name.upper().replace('-', '_')}"
        found[key] = f"{found[key]},{value}" if key in found else value
    return found


def keys(request: Request) -> list[set[str]]:
    plan = COMPILED.plan(request)
    return [{check.key for check in one.checks} for one in plan.rules]


def keys_of(cookie: str | None, user: str | None) -> list[set[str]]:
    """The keys of a caller whose framework reads *cookie* and *user*."""
    user = (user or "").strip()
    session = f"cookie:sid={hashed(cookie)}" if cookie else "cookie:sid!shared"
    return [{session}, {f"header:x-user={user}" if user else "header:x-user!shared"}]
