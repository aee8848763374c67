"""The fast path of the ASGI middleware sends, to the byte, what an ordinary check sends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.integrations import RouteLimit
from headgate.integrations.asgi import AsgiRequest, RateLimitMiddleware
from headgate.integrations.route_limit import named_limits
from headgate.limits import GCRA, LeakyBucket, TokenBucket
from headgate.runtime.drivers import adrive
from headgate.testing import ManualClock
from tests.examples import example_count
from tests.support.asgi_connection import Exchange, exchange, http
from tests.support.paced_limits import PACES

if TYPE_CHECKING:
    from headgate.integrations.asgi import Receive, Scope, Send
    from headgate.limits import Limit
    from tests.support.paced_limits import Pace

PEERS = ("203.0.113.7", "203.0.113.8", "::ffff:203.0.113.7", "2001:db8::1", "2001:db8::2", "", "x")
PATHS = ("/", "/items/1", "/health", "/Health/", "/static/app.js", "/static/../items", "//health")
ODD_LINES = (
    (b"content-type", b"text/plain"),
    (b"X-RateLimit-Limit", b"7"),
    (b"x-ratelimit-reset", b"8"),
    (b"ratelimit", b'"default";r=1;t=1, "other";r=5'),
    (b"RateLimit-Policy", b'"other";q=5;w=6'),
    (b"ratelimit", b'"other";r=5'),
    (b"retry-after", b"9"),
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", b"x-own, ratelimit"),
    (b"set-cookie", b"a=1"),
    (b"set-cookie", b"b=\xe9"),
)


class Step(NamedTuple):
    """A request, what the app does about it, and how long it is since the one before."""

    pause_ns: int
    peer: str
    path: str
    method: str
    asked: tuple[tuple[bytes, bytes], ...]
    answered: tuple[tuple[bytes, bytes], ...]
    chunks: int
    inside: str


STEPS = st.builds(
    Step,
    st.one_of(st.just(0), st.integers(0, 10**11), st.integers(-(10**9), 10**7)),
    st.sampled_from(PEERS),
    st.sampled_from(PATHS),
    st.sampled_from(("GET", "HEAD", "POST", "OPTIONS")),
    st.lists(
        st.sampled_from(
            (
                (b"origin", b"https://a.example"),
                (b"access-control-request-method", b"PUT"),
                (b"x-user", b"ann"),
                (b"x-user", b""),
                (b"x-forwarded-for", b"198.51.100.9"),
                (b"accept", b"application/problem+json"),
            )
        ),
        max_size=3,
    ).map(tuple),
    st.lists(st.sampled_from(ODD_LINES), max_size=4).map(tuple),
    st.integers(0, 3),
    st.sampled_from(("", "", "looks", "enters", "raises", "is silent", "enters, is silent")),
)
OPTIONS = st.fixed_dictionaries(
    {
        "cost": st.sampled_from((1, 1, 1, 0, 2, 3, 10**6)),
        "name": st.sampled_from(("default", "a", "x.y-z_0", "N" * 100)),
        "exempt": st.sampled_from(((), ("/health", "/static/**"))),
        "trusted_proxies": st.sampled_from(((), ("203.0.113.0/24",))),
        "key": st.sampled_from((None, "header", "several", "async")),
        "limits_preflights": st.booleans(),
    }
)


class AppError(Exception):
    """What the app raises."""


class App:
    """Does what the step in the scope says."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        step: Step = scope["step"]
        if step.inside == "looks":
            assert scope["headgate"].is_managed
        if step.inside.startswith("enters") and not await self.enter(scope, send):
            return
        if step.inside == "raises":
            raise AppError
        if step.inside.endswith("silent"):
            return
        headers = list(step.answered)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for n in range(step.chunks):
            await send({"type": "http.response.body", "body": b"%d" % n, "more_body": True})
        await send({"type": "http.response.body"})

    async def enter(self, scope: Scope, send: Send) -> bool:
        """Check a limit of the route."""
        context, request = scope["headgate"], AsgiRequest(scope)
        limit = RouteLimit(limits="3/minute", name="route")
        asking = context.limiter.plan_route(named_limits((limit,), "", ""), request, request)
        if await adrive(context.begin(context.limiter, asking)):
            return True
        refusal = context.denial_response(context.limiter)
        await send({"type": "http.response.start", "status": refusal.status, "headers": []})
        await send({"type": "http.response.body", "body": refusal.body})
        return False


async def by_lookup(request: Any) -> str | None:
    await asyncio.sleep(0)
    found: str | None = request.header("x-user")
    return found


def later(request: Any) -> Any:
    return by_lookup(request)


KEYS: dict[str | None, Any] = {
    None: None,
    "header": lambda request: request.header("x-user"),
    "several": lambda request: (request.header("x-user"), request.path, 5, None),
    "async": later,
}


def middleware(limit: Limit, options: dict[str, Any]) -> tuple[RateLimitMiddleware, ManualClock]:
    clock = ManualClock(1_000_000)
    chosen = {**options, "key": KEYS[options["key"]]}
    return RateLimitMiddleware(App(), limits=limit, clock=clock, **chosen), clock


async def told(
    subject: RateLimitMiddleware, clock: ManualClock, steps: list[Step]
) -> list[Exchange | None]:
    """What each request was answered; None if the app raised."""
    found: list[Exchange | None] = []
    for step in steps:
        clock.advance_ns(step.pause_ns)
        client = (step.peer, 1) if step.peer != "x" else None
        scope = http(step.path, method=step.method, headers=step.asked, client=client, step=step)
        try:
            found.append(await exchange(subject, scope))
        except AppError:
            found.append(None)
    return found


@pytest.fixture(autouse=True)
def nothing_exempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions that other tests have exempt have their routes looked for."""
    monkeypatch.setattr("headgate.integrations.asgi.EXEMPT_ONES", [])


def limit_of(pace: Pace, kind: str) -> Limit:
    if kind == "gcra":
        return GCRA(pace.rate, pace.quota)
    if kind == "leaky":
        return LeakyBucket(pace.quota, pace.rate)
    return TokenBucket(pace.quota, pace.rate)


def disable_fast_path(subject: RateLimitMiddleware) -> None:
    """Have all requests of *subject* planned and checked in the ordinary way."""
    setattr(subject.limiter, "simple_plan", lambda _request: None)  # noqa: B010


@settings(max_examples=example_count(150), deadline=None)
@given(
    pace=PACES,
    kind=st.sampled_from(("bucket", "gcra", "leaky")),
    steps=st.lists(STEPS, min_size=1, max_size=12),
    options=OPTIONS,
)
def test_the_fast_path_sends_what_an_ordinary_check_sends(
    pace: Pace, kind: str, steps: list[Step], options: dict[str, Any]
) -> None:
    limit = limit_of(pace, kind)
    fast, fast_clock = middleware(limit, options)
    ordinary, ordinary_clock = middleware(limit, options)
    disable_fast_path(ordinary)

    quickly = asyncio.run(told(fast, fast_clock, steps))
    slowly = asyncio.run(told(ordinary, ordinary_clock, steps))

    assert quickly == slowly
