"""The endpoints with a fixed path."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from headgate.errors import StoreError
from headgate.integrations.rate_limit_status import Shown, page_of, peek_at, unknown
from headgate.observability import METRICS
from headgate.policy.model import compiled_rule
from headgate.service.dashboard import HEADERS, NAMES, PAGE, PREFIX, file_named
from headgate.service.http.body import any_body_of, body_of, document_of, json_body_of
from headgate.service.http.check_request import TO_LOOK, read_asked
from headgate.service.http.original import Original, before_gateway, trail_in
from headgate.service.http.replies import (
    JSON_LINE,
    METRICS_LINE,
    NO_STORE,
    TEXT_LINE,
    RejectedError,
    Reply,
    header_of,
    json_reply,
    problem,
)
from headgate.service.http.reservations import Reservations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.engine.request import Request
    from headgate.service.http.check import Checker
    from headgate.service.http.original import Peers
    from headgate.service.http.replies import Headers, HttpOptions, Receive, Scope


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


# The state of every limit of a caller, without consuming any.


class RateLimitStatus:
    """`/v1/rate_limit`: the limits of the caller, or of one described by a body."""

    def __init__(self, checker: Checker, peers: Peers, options: HttpOptions) -> None:
        self._checker = checker
        self._peers = peers
        self._options = options

    async def of_this(self, scope: Scope, _receive: Receive) -> Reply:
        """The limits of the caller of this request, behind a gateway or not."""
        peer, is_gateway = self._peers.peer_of(scope)
        lines: Headers = list(scope["headers"])
        trail = trail_in(lines) if is_gateway else None
        if trail is not None:
            peer, trail = before_gateway(trail)
        host = next((value for name, value in lines if name == b"host"), b"")
        return await self._page(Original("GET", "/", host.decode("latin-1"), peer, lines, trail))

    async def of_described(self, scope: Scope, receive: Receive) -> Reply:
        """The limits of the caller that the body describes."""
        document = document_of(await json_body_of(scope, receive, self._options))
        return await self._page(read_asked(document, TO_LOOK).request)

    async def _page(self, request: Request) -> Reply:
        core = self._checker.core
        concerns = core.rules.in_force.compiled.concerning(request)
        shown = [
            Shown(compiled_rule(one.rule), one.limits, one.plan)
            for one in concerns
            if one.rule.headers == "on"
        ]
        peek = peek_at(shown)
        try:
            replies = await self._checker.within_deadline(core.rules.engine.store.arun(peek))
        except StoreError:
            replies = unknown(peek)
        return Reply(200, [JSON_LINE, NO_STORE], page_of(shown, replies, core.clock()))


RESERVATIONS: Final = b"/v1/reservations"
COMMIT: Final = b"/commit"

Endpoint = Callable[["Scope", "Receive"], Awaitable[Reply]]
RlsJson = Callable[[bytes], Awaitable[tuple[int, bytes]]]
Metrics = Callable[[], Awaitable[str]]


class Endpoints:
    """The table of endpoints by path and method."""

    def __init__(
        self,
        checker: Checker,
        peers: Peers,
        options: HttpOptions,
        rls_json: RlsJson | None,
        document: Mapping[str, object],
        metrics: Metrics | None = None,
    ) -> None:
        self._checker = checker
        self._options = options
        self._rls_json = rls_json
        self._metrics_text = metrics or _own_metrics
        self._reservations = Reservations(checker, options)
        status = RateLimitStatus(checker, peers, options)
        self._document = json.dumps(document).encode("ascii")
        self._table: dict[bytes, dict[str, Endpoint]] = {
            b"/v1/check": {"POST": self._check},
            b"/v1/rate_limit": {"GET": status.of_this, "POST": status.of_described},
            RESERVATIONS: {"POST": self._reserve},
            b"/healthz": {"GET": self._alive},
            b"/readyz": {"GET": self._ready},
            b"/metrics": {"GET": self._metrics},
            b"/openapi.json": {"GET": self._openapi},
            b"/": {"GET": self._index},
        }
        for name in NAMES:
            self._table[PREFIX + name.encode()] = {"GET": partial(self._file, name)}
        if rls_json is not None:
            self._table[b"/json"] = {"POST": self._json}
        for methods in self._table.values():
            if "GET" in methods:
                methods["HEAD"] = methods["GET"]

    async def reply(self, scope: Scope, path: bytes, receive: Receive) -> Reply:
        """Call the endpoint at *path*."""
        methods = self._table.get(path)
        if methods is None:
            if not path.startswith(RESERVATIONS + b"/"):
                raise RejectedError(problem(404, "no such path; see /openapi.json"))
            methods = self._of_one(path[len(RESERVATIONS) + 1 :])
        endpoint = methods.get(scope["method"])
        if endpoint is None:
            allowed = ", ".join(sorted(methods))
            raise RejectedError(
                problem(
                    405,
                    f"{scope['method'][:40]} is not allowed for this path; expected {allowed}",
                    headers=((b"allow", allowed.encode()),),
                )
            )
        return await endpoint(scope, receive)

    def _of_one(self, rest: bytes) -> dict[str, Endpoint]:
        """The endpoints of the reservation that *rest* names."""

        async def commit(scope: Scope, receive: Receive) -> Reply:
            body = await body_of(scope, receive, self._options)
            document = document_of(body) if body else {}
            return await self._reservations.commit(rest.removesuffix(COMMIT), document)

        async def cancel(_scope: Scope, _receive: Receive) -> Reply:
            return await self._reservations.cancel(rest)

        return {"POST": commit} if rest.endswith(COMMIT) else {"DELETE": cancel}

    async def _check(self, scope: Scope, receive: Receive) -> Reply:
        body = await json_body_of(scope, receive, self._options)
        return await self._checker.check(body, scope)

    async def _reserve(self, scope: Scope, receive: Receive) -> Reply:
        document = document_of(await json_body_of(scope, receive, self._options))
        return await self._reservations.reserve(document, scope)

    async def _json(self, scope: Scope, receive: Receive) -> Reply:
        assert self._rls_json is not None  # noqa: S101 (the path exists only then)
        # Any content type, like envoyproxy/ratelimit, whose users send it with a plain `curl -d`.
        body = await any_body_of(scope, receive, self._options)
        status, body = await self._rls_json(body)
        return Reply(status, [JSON_LINE, NO_STORE], body)

    async def _alive(self, _scope: Scope, _receive: Receive) -> Reply:
        return json_reply({"status": "alive"})

    async def _ready(self, _scope: Scope, _receive: Receive) -> Reply:
        core = self._checker.core
        if reasons := core.not_ready():
            return json_reply({"status": "not ready", "reasons": list(reasons)}, status=503)
        if trouble := core.trouble():
            return json_reply({"status": "ready", "reasons": list(trouble)})
        return json_reply({"status": "ready"})

    async def _metrics(self, _scope: Scope, _receive: Receive) -> Reply:
        text = await self._metrics_text()
        return Reply(200, [METRICS_LINE, NO_STORE], text.encode())

    async def _openapi(self, _scope: Scope, _receive: Receive) -> Reply:
        return Reply(200, [JSON_LINE], self._document)

    async def _index(self, scope: Scope, _receive: Receive) -> Reply:
        return overview(scope)

    async def _file(self, name: str, scope: Scope, _receive: Receive) -> Reply:
        return dashboard_file(scope, name)


async def _own_metrics() -> str:
    return METRICS.text()
