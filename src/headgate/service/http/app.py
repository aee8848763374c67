"""The HTTP API of a worker as one ASGI app: routes, gateway requests, and the small endpoints."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from headgate.errors import StoreError
from headgate.integrations.rate_limit_status import page_of, peek_at, unknown
from headgate.integrations.request_view import encoded
from headgate.observability import METRICS
from headgate.overload.shaper import WAITING
from headgate.runtime.drivers import adrive
from headgate.runtime.heartbeat import StartHeartbeat
from headgate.service.dashboard import HEADERS, NAMES, PAGE, PREFIX, file_named
from headgate.service.http.body import (
    DisconnectedError,
    any_body_of,
    body_of,
    document_of,
    json_body_of,
)
from headgate.service.http.check import TOO_MANY_REQUESTS, Checker
from headgate.service.http.check_request import CALLER_FIELDS, read_check
from headgate.service.http.hosts import AllowedHosts
from headgate.service.http.openapi import openapi_document
from headgate.service.http.original import (
    Original,
    Peers,
    before_gateway,
    original_at,
    original_in,
    trail_in,
    untrusted,
)
from headgate.service.http.replies import (
    JSON_LINE,
    METRICS_LINE,
    NO_STORE,
    TEXT_LINE,
    HttpOptions,
    RejectedError,
    Reply,
    header_of,
    json_reply,
    problem,
    respond,
)
from headgate.service.http.reservations import Reservations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.engine.request import Request
    from headgate.engine.use_cases import Engine
    from headgate.engine.verdict import Verdict
    from headgate.service.core import Core
    from headgate.service.http.replies import App, Headers, Receive, Scope, Send


# Queues of requests that a gateway asks about.
#
# A gateway cannot delay a request, so the service delays its answer until the request reaches the
# head of the queue. A gateway that stops waiting, because of its timeout or because its client has
# left, closes the connection: then the next request takes the place in the queue.


async def wait_in_queue(verdict: Verdict, engine: Engine, receive: Receive) -> None:
    """Wait until the delayed request of *verdict* may proceed.

    Its concurrency slots are renewed meanwhile, so their leases begin when it proceeds. Raises
    `DisconnectedError` if the gateway leaves. Then, and on cancellation, the place in the queue and
    the slots are released. What was charged stays charged, because a gateway that timed out may
    have let the request pass.
    """
    leaving = asyncio.ensure_future(_left(receive))
    lasts_ns = verdict.slots_last_ns
    beat = None
    if lasts_ns is not None:
        beat = await StartHeartbeat(lambda: engine.renew(verdict), lasts_ns).aperform()
    try:
        with WAITING:
            await asyncio.wait({leaving}, timeout=verdict.delay)
        has_left = leaving.done() and leaving.exception() is None
        if beat is not None and not has_left:
            with suppress(StoreError):  # the heartbeat renewed it a moment ago
                await adrive(engine.renew(verdict))
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


async def _left(receive: Receive) -> None:
    """Return when the client has disconnected; ignore what it still sends."""
    while (await receive())["type"] != "http.disconnect":
        pass


# `/`: the dashboard for browsers, a list of endpoints for programs.


INDEX: Final = b"""Headgate: a rate limit decision service.

GET  /                    in a browser: the dashboard
POST /v1/check            decide a request described in JSON
ANY  /v1/authorize/...    decide a gateway's request
GET  /v1/rate_limit       the limits of a caller
POST /v1/reservations     hold an amount, settle it later
GET  /healthz, /readyz    liveness, readiness
GET  /metrics             for Prometheus
ANY  /admin/v1/...        with a token: rules, history, live figures, explain
GET  /openapi.json        the API in detail
"""
_VARY: Final = (b"vary", b"accept")


def overview(scope: Scope) -> Reply:
    """The dashboard if the caller accepts HTML, as browsers do; otherwise the list."""
    if "text/html" not in (header_of(scope, b"accept") or ""):
        return Reply(200, [TEXT_LINE, _VARY], INDEX)
    return dashboard_file(scope, PAGE, _VARY)


def dashboard_file(scope: Scope, name: str, *headers: tuple[bytes, bytes]) -> Reply:
    """The file *name* of the dashboard; 304 if the caller has it already."""
    file = file_named(name)
    lines = [(b"etag", file.tag), *headers, *HEADERS]
    if file.tag.decode() in (header_of(scope, b"if-none-match") or ""):
        return Reply(304, lines, b"")
    return Reply(200, [(b"content-type", file.type), *lines], file.body)


AUTHORIZE: Final = b"/v1/authorize"
RESERVATIONS: Final = b"/v1/reservations"
COMMIT: Final = b"/commit"
_BEHIND: Final = len(AUTHORIZE)
_DENIALS: Final = MappingProxyType({"": TOO_MANY_REQUESTS, "429": TOO_MANY_REQUESTS, "403": 403})

Endpoint = Callable[["Scope", "Receive"], Awaitable[Reply]]


async def _own_metrics() -> str:
    return METRICS.text()


class HttpApp:
    """The HTTP API of one worker.

    *others* are apps for all paths below a prefix such as `/admin`; they receive the whole path.
    *json* answers `POST /json`, *metrics* `GET /metrics` (by default of this process only).
    *paths* and security *schemes* are added to the OpenAPI document. The app does not open or
    close *core*.
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
        metrics: Callable[[], Awaitable[str]] = _own_metrics,
    ) -> None:
        self.options = HttpOptions() if options is None else options
        self._checker = Checker(core, self.options)
        self._core = core
        self._peers = Peers(self.options)
        self._hosts = AllowedHosts(self.options)
        self._reservations = Reservations(self._checker, self.options)
        self._metrics_text = metrics
        self._document = openapi_document(paths, schemes=schemes, has_rls=json is not None)
        self._others = [
            (prefix.rstrip("/").encode(), prefix.rstrip("/").encode() + b"/", app)
            for prefix, app in others.items()
        ]
        self._table: dict[bytes, dict[str, Endpoint]] = {
            b"/v1/check": {"POST": self._check},
            b"/v1/rate_limit": {"GET": self._own_limits, "POST": self._described_limits},
            RESERVATIONS: {"POST": self._reserve},
            b"/healthz": {"GET": self._alive},
            b"/readyz": {"GET": self._ready},
            b"/metrics": {"GET": self._metrics},
            b"/openapi.json": {"GET": self._openapi},
            b"/": {"GET": self._index},
        }
        for name in NAMES:
            self._table[PREFIX + name.encode()] = {"GET": partial(self._file, name)}
        if json is not None:
            self._table[b"/json"] = {"POST": partial(self._json, json)}
        for methods in self._table.values():
            if "GET" in methods:
                methods["HEAD"] = methods["GET"]

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
                self._hosts.check(scope)
                for whole, below, app in self._others:
                    if path == whole or path.startswith(below):
                        await app(scope, receive, send)
                        return
                reply = await self._endpoint(scope, path)(scope, receive)
        except RejectedError as rejected:
            reply = rejected.reply
        except DisconnectedError:
            return
        await respond(send, reply, is_head=scope["method"] == "HEAD")

    def _endpoint(self, scope: Scope, path: bytes) -> Endpoint:
        """The endpoint at *path*. Raises `RejectedError` if there is none for the method."""
        methods = self._table.get(path)
        if methods is None:
            if not path.startswith(RESERVATIONS + b"/"):
                raise RejectedError(problem(404, "no such path; see /openapi.json"))
            name = path[len(RESERVATIONS) + 1 :]
            if name.endswith(COMMIT):
                methods = {"POST": partial(self._commit, name.removesuffix(COMMIT))}
            else:
                methods = {"DELETE": partial(self._cancel, name)}
        endpoint = methods.get(scope["method"])
        if endpoint is None:
            allowed = ", ".join(sorted(methods))
            detail = f"{scope['method'][:40]} is not allowed for this path; expected {allowed}"
            raise RejectedError(problem(405, detail, headers=((b"allow", allowed.encode()),)))
        return endpoint

    async def _authorize(self, scope: Scope, rest: bytes, receive: Receive) -> Reply:
        """Decide the request that a gateway asks about, delayed if the policy says so."""
        if len(scope["headers"]) > self.options.most_headers:
            raise RejectedError(problem(431, f"more than {self.options.most_headers} headers"))
        peer, is_gateway = self._peers.peer_of(scope)
        if not is_gateway:
            raise untrusted(peer)
        checker = self._checker
        request, denied_as = _original(scope, rest, peer)
        verdict = await checker.decide(checker.plan(request))
        if not verdict.allowed:
            # Only Envoy's filter adds the path of the request. It takes a 5xx for a failure of the
            # service, not for a denial, and may be configured to ignore failures.
            return checker.authorization_denial(
                verdict, scope, denied_as=denied_as, is_below_500=bool(rest)
            )
        if verdict.delay_ns:
            await wait_in_queue(verdict, checker.engine, receive)
        return checker.debugged(scope, verdict, 200, checker.encoder.lines(verdict), b"")

    async def _check(self, scope: Scope, receive: Receive) -> Reply:
        return await self._checker.check(await json_body_of(scope, receive, self.options), scope)

    async def _reserve(self, scope: Scope, receive: Receive) -> Reply:
        document = document_of(await json_body_of(scope, receive, self.options))
        return await self._reservations.reserve(document, scope)

    async def _commit(self, name: bytes, scope: Scope, receive: Receive) -> Reply:
        body = await body_of(scope, receive, self.options)
        return await self._reservations.commit(name, document_of(body) if body else {})

    async def _cancel(self, name: bytes, _scope: Scope, _receive: Receive) -> Reply:
        return await self._reservations.cancel(name)

    async def _own_limits(self, scope: Scope, _receive: Receive) -> Reply:
        """The limits of the caller of this request, behind a gateway or not."""
        peer, is_gateway = self._peers.peer_of(scope)
        lines: Headers = list(scope["headers"])
        trail = trail_in(lines) if is_gateway else None
        if trail is not None:
            peer, trail = before_gateway(trail)
        host = next((value for name, value in lines if name == b"host"), b"")
        return await self._limits_page(
            Original("GET", "/", host.decode("latin-1"), peer, lines, trail)
        )

    async def _described_limits(self, scope: Scope, receive: Receive) -> Reply:
        """The limits of the caller that the body describes."""
        document = document_of(await json_body_of(scope, receive, self.options))
        return await self._limits_page(read_check(document, CALLER_FIELDS).request)

    async def _limits_page(self, request: Request) -> Reply:
        core = self._core
        concerns = core.rules.in_force.compiled.concerning(request)
        shown = [one for one in concerns if one.rule.headers == "on"]
        peek = peek_at(shown)
        try:
            replies = await self._checker.within_deadline(core.rules.engine.store.arun(peek))
        except StoreError:
            replies = unknown(peek)
        return Reply(200, [JSON_LINE, NO_STORE], page_of(shown, replies, core.clock()))

    async def _json(
        self,
        answer: Callable[[bytes], Awaitable[tuple[int, bytes]]],
        scope: Scope,
        receive: Receive,
    ) -> Reply:
        # Any content type, like envoyproxy/ratelimit, whose users send it with a plain `curl -d`.
        status, body = await answer(await any_body_of(scope, receive, self.options))
        return Reply(status, [JSON_LINE, NO_STORE], body)

    async def _alive(self, _scope: Scope, _receive: Receive) -> Reply:
        return json_reply({"status": "alive"})

    async def _ready(self, _scope: Scope, _receive: Receive) -> Reply:
        if reasons := self._core.not_ready():
            return json_reply({"status": "not ready", "reasons": list(reasons)}, status=503)
        if trouble := self._core.trouble():
            return json_reply({"status": "ready", "reasons": list(trouble)})
        return json_reply({"status": "ready"})

    async def _metrics(self, _scope: Scope, _receive: Receive) -> Reply:
        text = await self._metrics_text()
        return Reply(200, [METRICS_LINE, NO_STORE], text.encode())

    async def _openapi(self, _scope: Scope, _receive: Receive) -> Reply:
        return Reply(200, [JSON_LINE], json.dumps(self._document).encode("ascii"))

    async def _index(self, scope: Scope, _receive: Receive) -> Reply:
        return overview(scope)

    async def _file(self, name: str, scope: Scope, _receive: Receive) -> Reply:
        return dashboard_file(scope, name)


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
