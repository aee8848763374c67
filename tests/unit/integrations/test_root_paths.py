"""A router finds a route with and without the root path before it: both are one path for rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from litestar import Litestar, get
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from headgate.integrations import litestar, starlette
from headgate.integrations.asgi import AsgiRequest
from headgate.policy.loader import read_policy
from tests.support.asgi_connection import http, statuses

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

RULES = {
    "of one path": "{id: r, match: {endpoint: /api/acct/me}, key_by: ip, limit: 2/day}",
    "by path": "{id: r, match: {endpoint: /api/acct/*}, key_by: endpoint, limit: 2/day}",
}


def _starlette(policy: Any) -> Any:
    async def whose(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.path_params["name"])

    limits = Middleware(starlette.RateLimitMiddleware, policy=policy)
    return Starlette(routes=[Route("/acct/{name}", whose)], middleware=[limits])


def _litestar(policy: Any) -> Any:
    @get("/acct/{name:str}")
    async def whose() -> str:
        return "ok"

    limits = litestar.RateLimitPlugin(policy=policy)
    return Litestar([whose], plugins=[limits], openapi_config=None)


@pytest.mark.parametrize("make", [_starlette, _litestar])
@pytest.mark.parametrize("rule", RULES)
def test_a_path_with_and_without_the_root_path_has_one_counter(
    make: Callable[[Any], Any], rule: str
) -> None:
    app = make(read_policy(f"version: 1\nrules: [{RULES[rule]}]"))
    paths = ["/acct/me", "/api/acct/me", "/acct/me", "/api/acct/me"]
    scopes = [http(path, raw_path=path.encode(), root_path="/api") for path in paths]
    assert statuses(app, *scopes) == [200, 200, 429, 429]


def test_equal_paths_below_different_root_paths_are_different() -> None:
    app = _starlette(read_policy(f"version: 1\nrules: [{RULES['of one path']}]"))
    scopes = [http("/acct/me", root_path=root) for root in ("/a", "/a", "/api", "/api", "/api")]
    assert statuses(app, *scopes) == [200, 200, 200, 200, 429]


@pytest.mark.parametrize(
    ("path", "root", "whole"),
    [
        ("/login", "", "/login"),
        ("/login", "/api", "/api/login"),
        ("/api/login", "/api", "/api/login"),
        ("/apilogin", "/api", "/api/apilogin"),
        ("/api", "/api", "/api"),
        ("/", "/api", "/api/"),
    ],
)
def test_the_path_of_a_request_is_whole(path: str, root: str, whole: str) -> None:
    scope = http(path, raw_path=path.encode(), root_path=root)
    assert AsgiRequest(scope).path == whole
