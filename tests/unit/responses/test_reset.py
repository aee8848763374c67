"""`X-RateLimit-Reset` of aligned windows is the window's end, however late the clock is read."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from headgate import MemoryStore, RateLimiter
from headgate.decision import decide_blocked
from headgate.integrations.asgi import RateLimitMiddleware
from headgate.integrations.wsgi import RateLimitMiddleware as WsgiMiddleware
from headgate.limits import parse_limit
from headgate.responses import allowed_lines, headers_for
from headgate.testing import ManualClock
from headgate.units import MILLISECOND, SECOND
from tests.support.asgi_connection import Answering, drive_all, http
from tests.support.decisions import answer, decided, told
from tests.support.http_app import app_of, check
from tests.support.rls_client import Asker, DistantStore, desc, headers_of

if TYPE_CHECKING:
    from collections.abc import Callable

DAY = 86_400
START = 1_800_000_000
END = (START // DAY + 1) * DAY
LIMIT = "1000/day fixed_window"
TWO = f"{LIMIT}; 900/day fixed_window"
POLICY = "version: 1\nrules: [{{id: a, key_by: '{key}', limit: '{limit}'}}]"


class LateClock(ManualClock):
    """A clock that moves on with each reading: the header is written after the decision."""

    def __call__(self) -> int:
        self.advance_ns(MILLISECOND)
        return super().__call__()


def of_asgi(limit: str) -> list[str]:
    app = RateLimitMiddleware(Answering(), limits=limit, clock=LateClock(START))
    sent = drive_all(app, *[http("/") for _ in range(80)])
    return [one.headers["x-ratelimit-reset"] for one in sent]


def of_wsgi(limit: str) -> list[str]:
    found = []

    def start(status: str, headers: list[tuple[str, str]], *_: Any) -> Any:
        found.append(dict(headers)["X-RateLimit-Reset"])

    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [b""]

    limited = WsgiMiddleware(app, limits=limit, clock=LateClock(START))
    for _ in range(80):
        list(limited({"REQUEST_METHOD": "GET", "PATH_INFO": "/", "REMOTE_ADDR": "::1"}, start))
    return found


def of_http(limit: str) -> list[str]:
    clock = LateClock(START)
    app = app_of(POLICY.format(key="ip", limit=limit), clock=clock)
    return [check(app).headers["x-ratelimit-reset"] for _ in range(80)]


def of_rls(limit: str) -> list[str]:
    asker = Asker(POLICY.format(key="attribute:u", limit=limit), clock=LateClock(START))
    sent = [asker.ask("edge", desc("u=ada")) for _ in range(80)]
    return [headers_of(one)["x-ratelimit-reset"] for one in sent]


@pytest.mark.parametrize("limit", [LIMIT, TWO])
@pytest.mark.parametrize("surface", [of_asgi, of_wsgi, of_http, of_rls])
def test_80_responses_of_a_fixed_window_show_its_end(
    surface: Callable[[str], list[str]], limit: str
) -> None:
    assert surface(limit) == [str(END)] * 80


def test_80_responses_of_a_window_on_the_real_clock_show_its_end() -> None:
    app = RateLimitMiddleware(Answering(), limits=LIMIT)
    before = time.time_ns() // SECOND // DAY
    sent = drive_all(app, *[http("/") for _ in range(80)])
    found = {int(one.headers["x-ratelimit-reset"]) for one in sent}
    after = time.time_ns() // SECOND // DAY
    assert found <= {(day + 1) * DAY for day in (before, after)}
    assert before != after or len(found) == 1


def test_a_store_whose_clock_differs_has_the_same_windows() -> None:
    for skew in (-4.0, 4.0):
        store = DistantStore(ManualClock(START + skew))
        policy = POLICY.format(key="attribute:u", limit=LIMIT)
        asker = Asker(policy, clock=ManualClock(START), store=store)
        reset = headers_of(asker.ask("edge", desc("u=ada")))["x-ratelimit-reset"]
        assert reset == str(END)


@pytest.mark.parametrize(
    "limit",
    [
        "9/minute fixed_window",
        "9/minute sliding_window_counter",
        "9/minute sliding_window_counter subwindows 7",
    ],
)
@pytest.mark.parametrize("late_ns", [0, 1, 100 * MILLISECOND, SECOND])
def test_an_aligned_reset_is_that_of_the_decision(limit: str, late_ns: int) -> None:
    clock = ManualClock(START + 1.5)
    store = MemoryStore(clock=clock)

    decision = RateLimiter(limit, store=store).hit("k")
    expected = -(-(clock() + decision.reset_after_ns) // SECOND)
    read_ns = clock() + late_ns
    lines = dict(headers_for(answer(told(decision)), now_ns=read_ns))
    assert lines["X-RateLimit-Reset"] == str(expected)
    pairs = dict(allowed_lines([("per-user", decision)], read_ns) or [])
    assert pairs[b"x-ratelimit-reset"] == str(expected).encode()


def test_a_hold_that_outlasts_the_window_resets_when_it_expires() -> None:
    clock = ManualClock(END - 10)
    limiter = RateLimiter(LIMIT, clock=clock)
    decision = limiter.reserve("k", 5, ttl=3_600).decision
    lines = dict(headers_for(answer(told(decision)), now_ns=clock()))
    assert lines["X-RateLimit-Reset"] == str(END - 10 + 3_600)


def test_a_counter_as_new_resets_now() -> None:
    decision = decided("9/minute fixed_window", left=9, reset_ms=0)
    lines = dict(headers_for(answer(told(decision)), now_ns=START * SECOND + 1))
    assert lines["X-RateLimit-Reset"] == str(START + 1)


def test_the_end_of_a_block_is_not_that_of_a_window() -> None:
    decision = decide_blocked(7 * SECOND, [("k", parse_limit("9/minute fixed_window"))])
    lines = dict(headers_for(answer(told(decision)), now_ns=START * SECOND))
    assert lines["X-RateLimit-Reset"] == str(START + 7)
