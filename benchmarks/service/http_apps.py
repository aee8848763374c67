"""What is served: a bare app, and the service under policies whose limits are never reached."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from headgate.engine import AsyncRuleEngine
from headgate.rules.reading import read_policy
from headgate.service.core import Core
from headgate.service.http import HttpApp

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    App = Callable[[Any, Any, Any], Awaitable[None]]

ONE_RULE: Final = """
version: 1
rules:
  - {id: per-ip, match: {endpoint: "/api/**"}, key_by: ip, limit: 1000000000/minute}
"""

DESIGN: Final = """
version: 1
identity:
  api_key: {header: x-api-key}
  user_id: {header: x-user-id}
  tenant:  {header: x-tenant-id}
  tier:    {header: x-tier, default: free}
  ip:      {trusted_proxies: [10.0.0.0/8], ipv6_prefix: 64}
rules:
  - id: login-brute-force
    match: {endpoint: /login, method: POST}
    key_by: ip
    limit: 5/minute sliding_window_log
    on_store_failure: fail_closed
  - id: free-tier-default
    match: {endpoint: /api/v1/*, tier: free}
    algorithm: token_bucket
    capacity: 1000000000
    refill_rate_per_sec: 16700000
    key_by: api_key
    on_store_failure: fail_open
  - id: per-tier
    match: {endpoint: /api/**}
    key_by: [tenant, endpoint]
    limits: {free: 100000000/s, paid: "1000000000/s burst 2000000000", enterprise: 1000000000/s}
    cost: {default: 1, endpoints: {"POST /export/pdf": 10}}
    mode: shadow
"""
"""The example of DESIGN.md with larger numbers: two of its rules are for the request, one of them
in shadow."""

POLICIES: Final = {"one rule": ONE_RULE, "the example": DESIGN}
BARE: Final = "bare"

_BODY: Final = b'{"allowed": true}'
_LINES: Final = [(b"content-type", b"application/json"), (b"content-length", b"17")]


async def bare(_scope: Any, _receive: Any, send: Any) -> None:
    """What the server costs by itself."""
    await send({"type": "http.response.start", "status": 200, "headers": _LINES})
    await send({"type": "http.response.body", "body": _BODY})


async def bare_server(scope: Any, receive: Any, send: Any) -> None:
    """The same, for a server that starts and stops it."""
    if scope["type"] != "lifespan":
        await bare(scope, receive, send)
        return
    for event in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{event}.complete"})


def app_named(name: str) -> App:
    """The app *name*: `bare`, or the service under one of `POLICIES`."""
    if name == BARE:
        return bare_server
    engine = AsyncRuleEngine(read_policy(POLICIES[name]), salt=b"salt")
    return HttpApp(Core(engine=engine, clock=time.time_ns, secret=b"a secret of the benchmark"))
