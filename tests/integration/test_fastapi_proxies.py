"""Who is counted behind a proxy: uvicorn and Headgate may each find that out, and agree."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from headgate.integrations.fastapi import RateLimitMiddleware
from tests.support.uvicorn_apps import serving


def remaining(url: str, forwarded: str) -> int:
    """What is left for whom the proxy at 127.0.0.1 says it asks for."""
    reply = httpx.get(url, headers={"x-forwarded-for": forwarded})
    return int(reply.headers["x-ratelimit-remaining"])


def app_with(**options: Any) -> FastAPI:
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, limits="10/day", **options)
    return app


@pytest.mark.parametrize(
    ("uvicorn", "ours"),
    [
        ({"forwarded_allow_ips": "127.0.0.1"}, {}),
        ({"proxy_headers": False}, {"trusted_proxies": ["127.0.0.1"]}),
    ],
    ids=["uvicorn looks", "Headgate looks"],
)
def test_a_client_behind_a_trusted_proxy_is_counted_by_its_own_address(
    uvicorn: dict[str, Any], ours: dict[str, Any]
) -> None:
    with serving(app_with(**ours), **uvicorn) as url:
        assert remaining(url, "203.0.113.5") == 9
        assert remaining(url, "198.51.100.1") == 9
        # What the client itself has put before what the proxy added is not believed.
        assert remaining(url, "192.0.2.1, 203.0.113.5") == 8
        assert remaining(url, "192.0.2.2, 203.0.113.5") == 7


def test_without_trust_all_who_come_by_the_proxy_are_one() -> None:
    with serving(app_with(), proxy_headers=False) as url:
        assert [remaining(url, f"203.0.113.{n}") for n in range(3)] == [9, 8, 7]
