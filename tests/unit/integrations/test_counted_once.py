"""A request is one request, at however many places of an app it is asked about."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import Depends, FastAPI

from headgate.integrations.asgi import RateLimitMiddleware as AsgiMiddleware
from headgate.integrations.fastapi import RateLimit, RateLimitMiddleware
from headgate.integrations.wsgi import RateLimitMiddleware as WsgiMiddleware
from headgate.observability import RECORDER, DecisionRecord, DecisionRecorder
from headgate.testing import ManualClock
from tests.support.asgi_client import Client, still_limiter
from tests.support.flask_apps import ask, made
from tests.support.slow_apps import App
from tests.support.slow_apps import Client as AsgiClient
from tests.support.wsgi_caller import call, hello


class Counted:
    """How many requests were admitted, and refused, since it was made."""

    def __init__(self) -> None:
        self._before = self._now()

    @property
    def requests(self) -> tuple[int, int]:
        admitted, refused = self._now()
        return admitted - self._before[0], refused - self._before[1]

    def _now(self) -> tuple[int, int]:
        shown = {
            dict(labels)["outcome"]: int(value) for _, labels, value in RECORDER.request_samples()
        }
        return shown["allowed"], shown["denied"]


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.mark.parametrize("is_watched", [True, False])
def test_a_route_with_a_limit_of_its_own_in_an_app_of_fastapi(
    counted: Counted, is_watched: bool
) -> None:
    app, limiter = FastAPI(), still_limiter()
    if is_watched:
        app.add_middleware(RateLimitMiddleware, limits="9/minute", clock=ManualClock(100))
    given: Any = {} if is_watched else {"limiter": limiter}
    first = Depends(RateLimit("3/minute", name="outer", **given))
    second = Depends(RateLimit("2/minute", name="inner", **given))

    @app.get("/", dependencies=[first, second])
    async def index() -> str:
        return "hello"

    client = Client(app)
    assert [client.get("/").status_code for _ in range(3)] == [200, 200, 429]
    assert counted.requests == (2, 1)


def test_a_view_with_a_limit_of_its_own_in_an_app_of_flask(counted: Counted) -> None:
    app, limits = made(limits="9/minute")

    @app.get("/")
    @limits.limit("2/minute")
    def index() -> str:
        return "hello"

    assert [ask(app).status_code for _ in range(3)] == [200, 200, 429]
    assert counted.requests == (2, 1)


def test_middlewares_within_middlewares(counted: Counted) -> None:
    inner: Any = WsgiMiddleware(hello, limits="2/minute", name="inner", clock=ManualClock(100))
    app = WsgiMiddleware(inner, limits="9/minute", clock=ManualClock(100))
    assert [call(app, "GET", "/").code for _ in range(3)] == [200, 200, 429]
    assert counted.requests == (2, 1)


@pytest.mark.parametrize("options", [{}, {"headers": "off"}], ids=["quick", "long"])
def test_both_ways_through_the_middleware(counted: Counted, options: dict[str, Any]) -> None:
    async def main() -> list[int]:
        app = AsgiMiddleware(App(0), limits="2/minute", clock=ManualClock(100), **options)
        return [(await AsgiClient(app).ask("/"))[0] for _ in range(3)]

    assert asyncio.run(main()) == [200, 200, 429]
    assert counted.requests == (2, 1)


def test_what_was_told_never_becomes_less() -> None:
    recorder = DecisionRecorder()
    recorder.requests[True][0] += 5
    assert recorder.allowed_requests() == 5
    recorder.repeated[0] += 1  # the last of them was asked about again, and refused
    assert recorder.allowed_requests() == 5
    recorder.requests[True][0] += 2
    assert recorder.allowed_requests() == 6


@pytest.fixture
def broken() -> Iterator[None]:
    def raising(_: DecisionRecord) -> None:
        raise RuntimeError("of no concern to a request")

    end = RECORDER.listen(raising)
    yield
    end()


@pytest.mark.usefixtures("broken")
def test_a_listener_that_raises_is_no_trouble_of_a_request(
    counted: Counted, caplog: pytest.LogCaptureFixture
) -> None:
    RECORDER._logged_ns = None
    app = WsgiMiddleware(hello, limits="2/minute", clock=ManualClock(100))
    assert [call(app, "GET", "/").code for _ in range(3)] == [200, 200, 429]
    assert counted.requests == (2, 1)
    (record,) = caplog.records
    assert "the decision listener" in record.getMessage()
    assert record.exc_info is not None
