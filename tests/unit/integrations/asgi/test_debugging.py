"""The debug header where an ASGI app has several parts: middlewares, websockets, mounted apps."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.errors import OptionError
from headgate.integrations import RequestLimiter
from headgate.integrations.asgi import RateLimitMiddleware
from headgate.limits import Concurrency
from headgate.policy.loader import read_policy
from headgate.responses.debug import debug_token
from headgate.testing import ManualClock
from headgate.units import SECOND
from tests.support.asgi_connection import (
    Answering,
    Exchange,
    accepting,
    drive,
    drive_all,
    exchange,
    http,
    websocket,
)

OURS = b"a secret"
START = 1_000


def token(secret: bytes = OURS) -> tuple[bytes, bytes]:
    made, _ = debug_token(secret, now_ns=START * SECOND, ttl_s=60)
    return b"headgate-debug", made.encode()


def limiter(**options: Any) -> RequestLimiter:
    return RequestLimiter(clock=ManualClock(START), **options)


def names(shown: str) -> list[str]:
    return [item.partition(";")[0].strip('"') for item in shown.split(", ")]


@pytest.mark.parametrize("secret", [OURS, b""], ids=["both know the secret", "the outer one does"])
def test_the_outer_one_of_two_tells_of_both(secret: bytes) -> None:
    within = RateLimitMiddleware(
        Answering(), limiter(limits="1/hour", name="within", debug_secret=secret)
    )
    app = RateLimitMiddleware(within, limiter(limits="9/hour", name="around", debug_secret=OURS))
    first, refused = drive_all(app, http(headers=[token()]), http(headers=[token()]))
    assert names(first.headers["headgate-decision"]) == ["around", "within"]
    assert refused.status == 429
    shown = refused.headers["headgate-decision"]
    assert names(shown) == ["around", "within"]
    assert '"within";allowed=?0' in shown


def test_a_websocket_is_told_whether_it_is_accepted_or_not() -> None:
    app = RateLimitMiddleware(accepting, limiter(limits="1/hour", debug_secret=OURS))
    accepted, refused = drive_all(app, websocket(headers=[token()]), websocket(headers=[token()]))
    assert '"default";allowed=?1' in accepted.headers["headgate-decision"]
    assert '"default";allowed=?0' in refused.headers["headgate-decision"]


def test_no_cache_keeps_what_is_told() -> None:
    own = [(b"cache-control", b"public, max-age=600"), (b"headgate-decision", b"forged")]
    app = RateLimitMiddleware(Answering(headers=own), limiter(limits="9/hour", debug_secret=OURS))
    shown = drive(app, http(headers=[token()])).headers
    assert shown["cache-control"] == "no-store"
    assert shown["headgate-decision"].startswith('"default"')
    assert drive(app, http()).headers["cache-control"] == "public, max-age=600"


def test_a_script_of_another_origin_may_read_what_is_told() -> None:
    app = RateLimitMiddleware(Answering(), limiter(limits="1/hour", debug_secret=OURS))
    browser = [(b"origin", b"https://shop.example")]
    for shown in drive_all(
        app, http(headers=[token(), *browser]), http(headers=[token(), *browser])
    ):
        assert "Headgate-Decision" in shown.headers["access-control-expose-headers"]
    assert (
        "Headgate" not in drive(app, http(headers=browser)).headers["access-control-expose-headers"]
    )


def test_a_turn_is_told_that_counts_nothing() -> None:
    policy = read_policy(
        "version: 1\nrules: [{id: turns, key_by: ip, fair: {slots: 1, queue: 0}}]\n"
    )
    meanwhile = Exchange()

    async def nested(scope: Any, receive: Any, send: Any) -> None:
        await exchange(app, http(headers=[token()]), into=meanwhile)
        await Answering()(scope, receive, send)

    app = RateLimitMiddleware(nested, limiter(policy=policy, debug_secret=OURS))
    had = drive(app, http(headers=[token()])).headers["headgate-decision"]
    assert had.startswith('"turns";allowed=?1;mode=enforce;key="ip=~')
    assert had.endswith(";cost=1;source=gate;revision=0")
    refused = meanwhile.headers["headgate-decision"]
    assert refused.startswith('"turns";allowed=?0;')
    assert "limit=" not in refused


def test_a_secret_is_bytes() -> None:
    with pytest.raises(OptionError, match="debug_secret is a str; expected bytes"):
        limiter(debug_secret=OURS.decode())  # as from an environment variable


def test_a_place_is_told() -> None:
    app = RateLimitMiddleware(Answering(), limiter(limits=Concurrency(2, 60), debug_secret=OURS))
    shown = drive(app, http(headers=[token()])).headers["headgate-decision"]
    assert ';limit="2 at the same time";used=1;remaining=1;' in shown


def test_a_replay_is_told_as_one() -> None:
    policy = read_policy(
        """
version: 1
rules:
  - {id: once, key_by: ip, limit: 5/hour, idempotency: {header: idempotency-key, ttl: 1h}}
  - {id: each, key_by: ip, limit: 5/hour}
"""
    )
    app = RateLimitMiddleware(Answering(), limiter(policy=policy, debug_secret=OURS))
    headers = [token(), (b"idempotency-key", b'"k"')]
    first, again = (
        one.headers["headgate-decision"]
        for one in drive_all(app, http(headers=headers), http(headers=headers))
    )
    assert names(first) == ["once", "each"]
    assert "replay" not in first
    assert '"each";allowed=?1' in again
    assert '"once";allowed=?1;mode=enforce;key="ip=~' in again
    assert ';limit="5/h";cost=0;source=replay;' in again


def test_requests_without_a_valid_token_are_told_nothing_more() -> None:
    app = RateLimitMiddleware(Answering(), limiter(limits="9/hour", debug_secret=OURS))
    shown = drive_all(app, http(), http(headers=[token()]), http(headers=[token(b"other")]))
    assert ["headgate-decision" in one.headers for one in shown] == [False, True, False]
