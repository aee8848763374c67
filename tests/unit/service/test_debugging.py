"""The debug header over HTTP and RLS, and the tokens of the admin API."""

from __future__ import annotations

import asyncio

import pytest

from headgate.responses.debugging import debug_token
from headgate.rules.envoy.gateway import DEBUG, GATEWAY_DOMAIN
from headgate.testing import ManualClock
from headgate.units import SECOND
from tests.unit.service.admin.desk import READER, Desk, attended
from tests.unit.service.http.calling import START, app_of, ask
from tests.unit.service.rls import theirs
from tests.unit.service.rls.asking_with import NOON, Asker, desc, headers_of, request

OURS = b"a secret of the service"


def token(secret: bytes = OURS, at: float = START) -> str:
    return debug_token(secret, now_ns=int(at) * SECOND, ttl_s=60)[0]


@pytest.mark.parametrize(("path", "count"), [("/v1/authorize/api/x", 4), ("/v1/check", 4)])
def test_over_http(path: str, count: int) -> None:
    app = app_of()
    lines = [("headgate-debug", token()), ("content-type", "application/json")]
    body = b'{"path": "/api/x", "ip": "127.0.0.1"}' if path == "/v1/check" else b""
    method = "POST" if body else "GET"
    answers = [ask(app, method, path, lines, body) for _ in range(count)]
    told = [answer.headers["headgate-decision"] for answer in answers]
    assert ["allowed=?1" in one for one in told] == [True, True, True, False]
    assert answers[-1].status == 429
    assert told[0].startswith('"per-ip";allowed=?1;mode=enforce;key="ip=~')
    assert ';counter="8=headgate=per-ip";' in told[0]
    others = [("headgate-debug", token(b"other")), *lines[1:]]
    assert "headgate-decision" not in ask(app, method, path, others, body).headers
    assert "headgate-decision" not in ask(app, method, path, lines[1:], body).headers


def test_the_gateway_passes_it_on() -> None:
    policy = "version: 1\nrules: [{id: per-key, key_by: api_key, limit: 1/minute}]\n"
    clock = ManualClock(NOON)
    asker = Asker(policy, clock=clock)

    def told(given: str) -> tuple[int, str | None]:
        entries = ((DEBUG, given), "method=GET", "path=/", "x-api-key=ada")
        answer = asker.calls.should_rate_limit(request(GATEWAY_DOMAIN, desc(*entries)))
        if not isinstance(answer, bytes):
            answer = asyncio.run(_bytes_of(answer))
        read = theirs.service.RateLimitResponse.FromString(answer)
        return int(read.overall_code), headers_of(read).get("headgate-decision")

    good = token(b"secret", NOON)
    code, line = told(good)
    assert line is not None
    assert line.startswith('"per-key";allowed=?1;mode=enforce;key="api_key=~')
    refused, line = told(good)
    assert refused != code
    assert line is not None
    assert '"per-key";allowed=?0' in line
    assert told("1.aa")[1] is None
    clock.advance(61)
    assert told(good)[1] is None


async def _bytes_of(answer: object) -> bytes:
    return await answer  # type: ignore[misc, no-any-return]  # it is awaitable, as `calls` says


def test_the_admin_api_makes_tokens() -> None:
    async def body(desk: Desk) -> None:
        made = await desk.ask("POST /debug-tokens", {"ttl": 60})
        assert made["header"] == "Headgate-Debug"
        assert made["token"].startswith(f"{made['expires']}.")
        assert any(event.what.startswith("make a debug token") for event in desk.audit.events)
        for wrong in ({"ttl": 0}, {"ttl": "1h"}, {"ttl": True}, {"for": 5}):
            status, _ = await desk.refusal("POST /debug-tokens", wrong)
            assert status in (400, 422)
        desk.token = READER
        assert (await desk.refusal("POST /debug-tokens", {}))[0] == 403

    attended(body)
