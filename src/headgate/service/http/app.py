"""The HTTP API of a worker as one ASGI app: routes and gateway requests."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from headgate.errors import StoreError
from headgate.integrations.request_view import encoded
from headgate.overload.shaper import WAITING
from headgate.runtime.drivers import adrive
from headgate.runtime.heartbeat import StartHeartbeat
from headgate.service.http.body import DisconnectedError
from headgate.service.http.check import TOO_MANY_REQUESTS, Checker
from headgate.service.http.endpoints import Endpoints
from headgate.service.http.openapi import openapi_document
from headgate.service.http.original import Peers, original_at, original_in, untrusted
from headgate.service.http.replies import (
    HttpOptions,
    RejectedError,
    Reply,
    header_of,
    problem,
    respond,
)
from headgate.service.http.verdict_json import debugged

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from headgate.engine.use_cases import Engine
    from headgate.engine.verdict import Verdict
    from headgate.service.core import Core
    from headgate.service.http.original import Original
    from headgate.service.http.replies import App, Receive, Scope, Send


# Delaying the answer to a gateway until the request reaches the head of the queue.
#
# A gateway cannot delay a request, but it waits for the answer, so the answer is delayed. A gateway
# that gives up earlier, by its own timeout or because its client has left, closes the connection:
# then the place in the queue goes to the next request.


async def wait_in_queue(verdict: Verdict, engine: Engine, receive: Receive) -> None:
    """Wait until the delayed request of *verdict* may proceed.

    Its concurrency slots are renewed meanwhile, so their leases begin when it proceeds. Raises
    `DisconnectedError` if the gateway leaves. Then, and on cancellation, the place in the queue and
    the slots are released. What was charged stays charged, because a gateway that timed out may
    have let the request pass.
    """
    leaving = asyncio.ensure_future(_left(receive))
    lasts_ns = verdict.slots_last_ns

    async def renew() -> bool:
        return await adrive(engine.renew(verdict))

    beat = None
    if lasts_ns is not None:
        beat = await StartHeartbeat(lambda: engine.renew(verdict), lasts_ns).aperform()
    try:
        with WAITING:
            await asyncio.wait({leaving}, timeout=verdict.delay)
        has_left = leaving.done() and leaving.exception() is None
        if beat is not None and not has_left:
            await _renewed(renew)
    except asyncio.CancelledError:
        await adrive(engine.abandon(verdict))
        raise
    finally:
        leaving.cancel()
        if beat is not None:
            beat.stop()
    if has_left:
        await adrive(engine.abandon(verdict))
        raise DisconnectedError


async def _renewed(renew: Callable[[], Awaitable[bool]]) -> None:
    with suppress(StoreError):  # the heartbeat renewed it a moment ago
        await renew()


async def _left(receive: Receive) -> None:
    """Return when the client has disconnected; ignore what it still sends."""
    while (await receive())["type"] != "http.disconnect":
        pass


AUTHORIZE: Final = b"/v1/authorize"
_BEHIND: Final = len(AUTHORIZE)
_DENIALS: Final = MappingProxyType({"": TOO_MANY_REQUESTS, "429": TOO_MANY_REQUESTS, "403": 403})


class HttpApp:
    """The HTTP API of one worker.

    *others* are apps for all paths below a prefix such as `/admin`; they receive the whole path.
    *json* answers `POST /json`, *metrics* `GET /metrics` (None: this process only). *paths* and
    security *schemes* are added to the OpenAPI document. The app does not open or close *core*.
    """

    def __init__(
        self,
        core: Core,
        *,
        options: HttpOptions | None = None,
        others: Mapping[str, App] = MappingProxyType({}),
        json: Callable[[bytes], Awaitable[tuple[int, bytes]]] | None = None,
        paths: Mapping[str, object] = MappingProxyType({}),
        schemes: Mapping[str, object] = MappingProxyType({}),
        metrics: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        self.options = HttpOptions() if options is None else options
        self._checker = Checker(core, self.options)
        self._peers = Peers(self.options)
        document = openapi_document(paths, schemes=schemes, has_rls=json is not None)
        self._endpoints = Endpoints(
            self._checker, self._peers, self.options, json, document, metrics
        )
        self._others = [
            (prefix.rstrip("/").encode(), prefix.rstrip("/").encode() + b"/", app)
            for prefix, app in others.items()
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or the lifespan events of the server."""
        if scope["type"] != "http":
            await _other_kind(scope, receive, send)
            return
        path = _raw_path(scope)
        try:
            if path.startswith(AUTHORIZE):
                reply = await self._authorize(scope, path[_BEHIND:], receive)
            else:
                for whole, below, app in self._others:
                    if path == whole or path.startswith(below):
                        await app(scope, receive, send)
                        return
                reply = await self._endpoints.reply(scope, path, receive)
        except RejectedError as rejected:
            reply = rejected.reply
        except DisconnectedError:
            return
        await respond(send, reply, is_head=scope["method"] == "HEAD")

    async def _authorize(self, scope: Scope, rest: bytes, receive: Receive) -> Reply:
        """Decide the request that a gateway asks about, delayed if the policy says so."""
        if len(scope["headers"]) > self.options.most_headers:
            raise RejectedError(problem(431, f"more than {self.options.most_headers} headers"))
        if len(rest) > self.options.longest_target:
            raise RejectedError(problem(414, f"more than {self.options.longest_target} bytes"))
        peer, is_gateway = self._peers.peer_of(scope)
        if not is_gateway:
            raise untrusted(peer)
        checker = self._checker
        request, denied_as = _original(scope, rest, peer)
        verdict = await checker.decide(checker.plan(request))
        if verdict.allowed:
            if verdict.delay_ns:
                await wait_in_queue(verdict, checker.engine, receive)
            reply = Reply(200, checker.encoder.lines(verdict), b"")
            return debugged(checker.core, scope, verdict, reply)
        accept = header_of(scope, b"accept")
        # Only Envoy's form has a path. For Envoy's filter a 5xx is not a denial but a failure of
        # ours, which it may be configured to ignore.
        reply = checker.authorization_denial(
            verdict, accept, denied_as=denied_as, is_below_500=bool(rest)
        )
        return debugged(checker.core, scope, verdict, reply)


def _original(scope: Scope, rest: bytes, peer: str) -> tuple[Original, int]:
    """The request that the gateway asks about, and the status for a denial."""
    if not rest:
        return original_in(scope, peer), _denied_as(scope.get("query_string", b""))
    if rest[0] not in b"/*":
        raise RejectedError(problem(404, "no such path; use /v1/authorize/ with a slash"))
    return original_at(scope, rest, peer), TOO_MANY_REQUESTS


def _denied_as(query: bytes) -> int:
    """The status of denials for the gateway: nginx knows only 401 and 403."""
    if not query:
        return TOO_MANY_REQUESTS
    asked = parse_qs(query.decode("latin-1")).get("deny", [""])  # a client may send any bytes
    status = _DENIALS.get(asked[0]) if len(asked) == 1 else None
    if status is None:
        raise RejectedError(problem(400, "deny is the status of denials: expected 403 or 429"))
    return status


def _raw_path(scope: Scope) -> bytes:
    raw: bytes | None = scope.get("raw_path")
    if raw is None:  # optional in ASGI
        raw = encoded(scope["path"]).encode("ascii")
    return raw if b"?" not in raw else raw.partition(b"?")[0]


async def _other_kind(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()  # websocket.connect, which must be received first
        await send({"type": "websocket.close", "code": 1008})
        return
    if scope["type"] != "lifespan":
        raise RuntimeError(f"the service supports HTTP only, not {scope['type']!r}")
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
