"""Browsers of other origins: the CORS middleware outside, Headgate within."""

import pytest
from fastapi import Depends, FastAPI
from fastapi.middleware.cors import CORSMiddleware

from headgate.integrations.fastapi import RateLimit, RateLimitMiddleware
from tests.support.asgi_client import Client, still_limiter

ORIGIN = {"origin": "https://shop.test"}
PREFLIGHT = {**ORIGIN, "access-control-request-method": "GET"}


def app_with(*, is_watched: bool) -> FastAPI:
    app = FastAPI()
    limiter = still_limiter()
    if is_watched:
        app.add_middleware(RateLimitMiddleware, limiter=limiter)
    app.add_middleware(CORSMiddleware, allow_origins=["https://shop.test"])  # added last: outside
    limited = Depends(RateLimit("1/minute", limiter=limiter))
    app.add_api_route("/", lambda: "hello", dependencies=[limited])
    return app


@pytest.mark.parametrize("is_watched", [True, False], ids=["watched", "alone"])
def test_scripts_of_other_origins_can_read_the_headers_of_answers_and_refusals(
    is_watched: bool,
) -> None:
    client = Client(app_with(is_watched=is_watched))
    assert client.ask("OPTIONS", "/", headers=PREFLIGHT).status_code == 200
    for status in (200, 429):
        reply = client.get("/", headers=ORIGIN)
        assert reply.status_code == status
        assert reply.headers["access-control-allow-origin"] == "https://shop.test"
        exposed = reply.headers["access-control-expose-headers"].lower()
        assert "x-ratelimit-remaining" in exposed
        assert ("retry-after" in exposed) is (status == 429)
