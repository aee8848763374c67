"""Responses that servers forget without closing them: their slots are not kept for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headgate import Concurrency
from headgate.integrations import RequestLimiter
from headgate.integrations.wsgi import RateLimitMiddleware
from headgate.policy.loader import read_policy
from headgate.testing import ManualClock
from tests.support.heartbeats import listened
from tests.support.wsgi_bodies import Chunks, answering, begun, close

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def not_read(body: Iterable[bytes]) -> None:
    pass


def read_in_part(body: Iterable[bytes]) -> None:
    next(iter(body))


@pytest.mark.parametrize("way", [not_read, read_in_part])
def test_a_body_that_nobody_closes_is_not_renewed_once_it_is_forgotten(
    way: Callable[[Iterable[bytes]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    heart, clock = listened(monkeypatch), ManualClock(100)
    limiter = RequestLimiter(limits=Concurrency(1, ttl=60), clock=clock)
    body, _ = begun(RateLimitMiddleware(answering(Chunks(b"a", b"b")), limiter))
    way(body)
    assert heart.are_beating == [True]
    del body
    assert heart.are_beating == [False]
    clock.advance(60)
    assert begun(RateLimitMiddleware(answering([]), limiter))[1].code == 200


@pytest.mark.parametrize("way", [not_read, read_in_part])
@pytest.mark.parametrize("what", ["slots: 1", "slots: {adaptive: gradient, max: 1}"])
def test_a_body_that_nobody_closes_leaves_its_turn_once_it_is_forgotten(
    way: Callable[[Iterable[bytes]], None], what: str
) -> None:
    rule = f"{{id: a, key_by: ip, fair: {{{what}, queue: 0}}}}"
    limiter = RequestLimiter(policy=read_policy(f"version: 1\nrules: [{rule}]"))
    body, _ = begun(RateLimitMiddleware(answering(Chunks(b"a", b"b")), limiter))
    way(body)
    assert begun(RateLimitMiddleware(answering([]), limiter))[1].code == 503
    del body
    for _ in range(2):
        assert begun(RateLimitMiddleware(answering([]), limiter))[1].code == 200
    assert [one.in_flight for one in limiter.queues.gates()] == [0]


def test_a_body_that_is_read_to_its_end_has_released_its_slot() -> None:
    limiter = RequestLimiter(limits=Concurrency(1, ttl=60), clock=ManualClock(100))
    body, _ = begun(RateLimitMiddleware(answering(Chunks(b"a", b"b")), limiter))
    assert begun(RateLimitMiddleware(answering([]), limiter))[1].code == 429
    assert b"".join(body) == b"ab"
    assert begun(RateLimitMiddleware(answering([]), limiter))[1].code == 200


def test_a_body_that_is_closed_is_not_renewed_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    heart = listened(monkeypatch)
    limiter = RequestLimiter(limits=Concurrency(1, ttl=60), clock=ManualClock(100))
    body, _ = begun(RateLimitMiddleware(answering(Chunks(b"a", b"b")), limiter))
    assert heart.are_beating == [True]
    close(body)
    assert heart.are_beating == [False]
