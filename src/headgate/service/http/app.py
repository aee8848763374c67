"""Which path leads where: the whole HTTP side of a worker, as one ASGI app."""

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
from headgate.runtime.heartbeat import ASYNC_HEART, BEATS
from headgate.service.http.body import DisconnectedError
from headgate.service.http.check import TOO_MANY_REQUESTS, Checking
from headgate.service.http.endpoints import Endpoints
from headgate.service.http.openapi import openapi_document
from headgate.service.http.original import Peers, original_at, original_in, untrusted
from headgate.service.http.replies import (
    HttpOptions,
    RefusedError,
    Reply,
    header_of,
    problem,
    respond,
)
from headgate.service.http.verdict_json import debugged

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from headgate.engine.plan import Plan
    from headgate.engine.use_cases import Engine
    from headgate.engine.verdict import Verdict
    from headgate.service.core import Core
    from headgate.service.http.original import Original
    from headgate.service.http.replies import App, Receive, Scope, Send


# Holding back the answer to a gateway until the request it asks about has its turn.
#
# A gateway cannot delay a request, but it waits for the answer. So the answer comes when the turn
# does. A gateway that gives up before, by its own timeout or because its client has left, closes
# the connection: then the turn goes to whoever comes next.


async def turn_of(verdict: Verdict, engine: Engine, receive: Receive) -> None:
    """Wait until the request of *verdict*, which is delayed, has its turn.

    Its places under concurrency limits are kept meanwhile: their leases begin with the turn.
    `DisconnectedError` if nobody waits for the answer any more. Then, and if this is cancelled, the
    turn is given up, and the places are given back; what was counted stays so, since a gateway
    that has lost its patience may have let the request pass.
    """
    leaving = asyncio.ensure_future(_left(receive))
    lasts_ns = verdict.slots_last_ns

    async def renew() -> bool:
        return await adrive(engine.renew(verdict))

    beat = None if lasts_ns is None else ASYNC_HEART.beat(renew, lasts_ns // BEATS)
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
    with suppress(StoreError):  # it lasts a while yet: the heart has seen to that
        await renew()


async def _left(receive: Receive) -> None:
    """Return when the client is gone; what it still sends is of no interest."""
    while (await receive())["type"] != "http.disconnect":
        pass


AUTHORIZE: Final = b"/v1/authorize"
_BEHIND: Final = len(AUTHORIZE)
_DENIALS: Final = MappingProxyType({"": TOO_MANY_REQUESTS, "429": TOO_MANY_REQUESTS, "403": 403})


class HttpApp:
    """The HTTP API of one worker.

    *others* are apps for all paths below a prefix, as `/admin`; they see the whole path. *json*
    answers `POST /json`, *metrics* `GET /metrics` (None: of this process). *paths* are what they
    add to the OpenAPI document, and *schemes* who may go there. The app opens and closes nothing:
    *core* is its maker's.
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
        self._checking = Checking(core, self.options)
        self._peers = Peers(self.options)
        document = openapi_document(paths, schemes=schemes, has_rls=json is not None)
        self._endpoints = Endpoints(
            self._checking, self._peers, self.options, json, document, metrics
        )
        self._others = [
            (prefix.rstrip("/").encode(), prefix.rstrip("/").encode() + b"/", app)
            for prefix, app in others.items()
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; start and end with the server."""
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
        except RefusedError as refused:
            reply = refused.reply
        except DisconnectedError:
            return
        await respond(send, reply, is_head=scope["method"] == "HEAD")

    async def _authorize(self, scope: Scope, rest: bytes, receive: Receive) -> Reply:
        """What a gateway is told that asks about a request, when that has its turn."""
        if len(scope["headers"]) > self.options.most_headers:
            raise RefusedError(problem(431, f"more than {self.options.most_headers} headers"))
        if len(rest) > self.options.longest_target:
            raise RefusedError(problem(414, f"more than {self.options.longest_target} bytes"))
        peer, is_gateway = self._peers.peer_of(scope)
        if not is_gateway:
            raise untrusted(peer)
        checking = self._checking
        plan, denied_as = self._plan(scope, rest, peer)
        verdict = checking.at_once(plan)
        if verdict is None:
            verdict = await checking.decided(plan)
        if verdict.allowed:
            if verdict.delay_ns:
                await turn_of(verdict, checking.engine, receive)
            reply = Reply(200, checking.teller.lines(verdict), b"")
            return debugged(checking.core, scope, verdict, reply)
        accept = header_of(scope, b"accept")
        # Only Envoy's question has a path. To its filter a 5xx is not a refusal but a failure of
        # ours, upon which it may be told to let everything pass.
        told = checking.refusal(verdict, accept, denied_as=denied_as, is_below_500=bool(rest))
        return debugged(checking.core, scope, verdict, told)

    def _plan(self, scope: Scope, rest: bytes, peer: str) -> tuple[Plan, int]:
        """What is asked about the request, and the status that its refusal is to have."""
        request, denied_as = self._asked_about(scope, rest, peer)
        return self._checking.plan(request), denied_as

    def _asked_about(self, scope: Scope, rest: bytes, peer: str) -> tuple[Original, int]:
        """The request, and the status that its refusal is to have."""
        if not rest:
            return original_in(scope, peer), _denied_as(scope.get("query_string", b""))
        if rest[0] not in b"/*":
            raise RefusedError(problem(404, "no such path; did you mean /v1/authorize/?"))
        return original_at(scope, rest, peer), TOO_MANY_REQUESTS


def _denied_as(query: bytes) -> int:
    """The status that the gateway wants for refusals: nginx knows only 401 and 403."""
    if not query:
        return TOO_MANY_REQUESTS
    wanted = parse_qs(query.decode("latin-1")).get("deny", [""])  # a client may send any bytes
    status = _DENIALS.get(wanted[0]) if len(wanted) == 1 else None
    if status is None:
        raise RefusedError(problem(400, "deny is the status of refusals: expected 403 or 429"))
    return status


def _raw_path(scope: Scope) -> bytes:
    raw: bytes | None = scope.get("raw_path")
    if raw is None:  # a server need not have it
        raw = encoded(scope["path"]).encode("ascii")
    return raw if b"?" not in raw else raw.partition(b"?")[0]


async def _other_kind(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()  # websocket.connect, which has to be heard first
        await send({"type": "websocket.close", "code": 1008})
        return
    if scope["type"] != "lifespan":
        raise RuntimeError(f"the service answers HTTP, not {scope['type']!r}")
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
