"""A request with a token hears how it was decided, in every kind of app; no other does."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from headgate.integrations import asgi, wsgi
from headgate.responses.debug import debug_token

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIEnvironment

SECRET = b"a secret"
POLICY = """
version: 1
rules:
  - {id: per-ip, key_by: ip, limit: 9/minute; 2/s}
  - {id: tried, key_by: ip, limit: 1/hour, mode: shadow}
"""


def token() -> str:
    return debug_token(SECRET, now_ns=time.time_ns(), ttl_s=60)[0]


async def plain(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def blocking(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
    start("200 OK", [("Content-Type", "text/plain")])
    return [b"hello"]


def decisions_by(app: Any, headers: list[dict[str, str]]) -> list[str | None]:
    """What `Headgate-Decision` says in the responses of *app* to requests with *headers*."""
    if isinstance(app, wsgi.RateLimitMiddleware):
        with httpx.Client(transport=httpx.WSGITransport(app), base_url="http://app") as client:
            return [
                client.get("/", headers=one).headers.get("headgate-decision") for one in headers
            ]

    async def ask() -> list[str | None]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
            answers = [await client.get("/", headers=one) for one in headers]
            return [answer.headers.get("headgate-decision") for answer in answers]

    return asyncio.run(ask())


@pytest.fixture(params=["asgi", "wsgi"])
def kind(request: pytest.FixtureRequest) -> Any:
    if request.param == "asgi":
        return lambda **options: asgi.RateLimitMiddleware(plain, **options)
    return lambda **options: wsgi.RateLimitMiddleware(blocking, **options)


def test_all_limits_that_applied_are_told(kind: Any, tmp_path: Any) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(POLICY, encoding="utf-8")
    good = {"headgate-debug": token()}
    app = kind(policy=rules, debug_secret=SECRET)
    first, second, refused = decisions_by(app, [good, good, good])
    assert first is not None
    assert second is not None
    assert refused is not None
    items = first.split(", ")
    assert [item.partition(";")[0] for item in items] == ['"per-ip"', '"per-ip/2"', '"tried"']
    assert ';limit="2/s";used=1;remaining=1;cost=1;source=store;revision=' in items[1]
    assert items[2].startswith('"tried";allowed=?1;mode=shadow;key="ip=~')
    assert '"tried";allowed=?0;mode=shadow' in second
    assert '"per-ip/2";allowed=?0' in refused
    assert "127.0.0.1" not in first + second + refused


@pytest.mark.parametrize("options", [{"debug_secret": SECRET}, {"debug_secret": b"other"}, {}])
def test_without_a_good_token_nothing_is_told(kind: Any, options: dict[str, bytes]) -> None:
    wrong: list[dict[str, str]] = [{}, {"headgate-debug": "1.00"}]
    if options != {"debug_secret": SECRET}:
        wrong.append({"headgate-debug": token()})
    assert decisions_by(kind(limits="5/minute", **options), wrong) == [None] * len(wrong)


def test_limits_in_code_are_told_too(kind: Any) -> None:
    app = kind(limits="1/minute", debug_secret=SECRET)
    good = {"headgate-debug": token()}
    admitted, refused = decisions_by(app, [good, good])
    assert admitted is not None
    assert refused is not None
    assert ";allowed=?1;" in admitted
    assert ";allowed=?0;" in refused


def test_who_has_no_limit_hears_that(kind: Any) -> None:
    app = kind(limits="1/minute", exempt=["/"], debug_secret=SECRET)
    assert decisions_by(app, [{"headgate-debug": token()}]) == ["none"]
