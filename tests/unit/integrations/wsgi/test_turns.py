"""Requests that are delayed, take turns or are shed, in apps that block."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any
from wsgiref.util import setup_testing_defaults

from headgate.integrations.wsgi import RateLimitMiddleware
from headgate.policy.loader import read_policy
from headgate.testing import ManualClock
from tests.support.heartbeats import listened

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

SHAPE = """
version: 1
rules: [{id: exports, key_by: global, shape: {rate: 10/s, queue: 3}}]
"""
TURNS = """
version: 1
rules: [{id: turns, key_by: tenant, fair: {slots: 1, queue: 1, max_wait: 60s}}]
"""


def ask(app: Any, path: str = "/") -> tuple[str, dict[str, str]]:
    environ: dict[str, Any] = {"PATH_INFO": path, "REMOTE_ADDR": "1.2.3.4"}
    setup_testing_defaults(environ)
    said: list[Any] = []

    def start_response(status: str, headers: Any, exc_info: Any = None) -> Callable[..., object]:
        said[:] = status, {name.lower(): value for name, value in headers}
        return lambda _: None

    body = app(environ, start_response)
    try:
        list(body)
    finally:
        if hasattr(body, "close"):
            body.close()
    return said[0][:3], said[1]


def test_a_shaped_request_is_delayed() -> None:
    clock, began = ManualClock(1_000), []

    def app(environ: Any, start_response: Any) -> list[bytes]:
        began.append(clock.now)
        start_response("200 OK", [])
        return [b"ok"]

    limited = RateLimitMiddleware(app, policy=read_policy(SHAPE), clock=clock)
    first = ask(limited)
    second = ask(limited)
    assert [first[0], second[0]] == ["200", "200"]
    assert began == [1_000, 1_000.1]
    assert second[1]["headgate-delay"] == "0.1"


def test_tenants_take_turns_and_a_full_queue_sheds() -> None:
    may_go, is_in = threading.Event(), threading.Event()

    def app(environ: Any, start_response: Any) -> list[bytes]:
        is_in.set()
        assert may_go.wait(30)
        start_response("200 OK", [])
        return [b"ok"]

    limited = RateLimitMiddleware(app, policy=read_policy(TURNS))
    answers: list[tuple[str, dict[str, str]]] = []

    def one() -> None:
        answers.append(ask(limited))

    first, second = threading.Thread(target=one), threading.Thread(target=one)
    first.start()
    assert is_in.wait(30)
    second.start()
    while limited.limiter.queues.waiting < 1:
        threading.Event().wait(0.001)
    refused = ask(limited)
    may_go.set()
    first.join(30)
    second.join(30)
    assert refused[0] == "503"
    assert "waiting=1" in refused[1]["headgate-queue"]
    assert [status for status, _ in answers] == ["200", "200"]
    assert limited.limiter.queues.waiting == 0


def test_an_app_that_raises_gives_its_turn_back() -> None:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        raise ValueError("no")

    limited = RateLimitMiddleware(app, policy=read_policy(TURNS))
    for _ in range(3):
        try:
            ask(limited)
        except ValueError:
            continue
    (limiter,) = limited.limiter.queues.gates()
    assert limiter.in_flight == 0


def test_the_slots_of_a_request_are_renewed_while_it_lasts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rules = "version: 1\nrules: [{id: one, key_by: global, concurrency: {limit: 1, ttl: 60s}}]"
    heart, clock, during = listened(monkeypatch), ManualClock(100), []

    def app(environ: Any, start_response: Any) -> list[bytes]:
        if environ["PATH_INFO"] == "/long":
            for _ in range(5):
                clock.advance(20)
                heart.renew_at(heart.begun[0].due_ns)
            during.append(ask(limited)[0])
        start_response("200 OK", [])
        return [b"ok"]

    limited = RateLimitMiddleware(app, policy=read_policy(rules), clock=clock)
    assert ask(limited, "/long")[0] == "200"
    assert during == ["429"]
    assert ask(limited)[0] == "200"
