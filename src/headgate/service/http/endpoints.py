"""The endpoints that have a path of their own, and what each does."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from headgate.errors import StoreError
from headgate.integrations.rate_limit_status import Shown, page_of, peek_at, unknown
from headgate.observability import MEASURES
from headgate.policy.model import compiled_rule
from headgate.service.dashboard import NAMES, PREFIX, file_reply, page_reply
from headgate.service.http.body import any_body_of, body_of, document_of, json_body_of
from headgate.service.http.check_request import TO_LOOK, read_asked
from headgate.service.http.original import Original, before_gateway, trail_in
from headgate.service.http.replies import (
    JSON_LINE,
    METRICS_LINE,
    NO_STORE,
    TEXT_LINE,
    RefusedError,
    Reply,
    header_of,
    json_reply,
    problem,
)
from headgate.service.http.reservations import Reservations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.engine.request import Request
    from headgate.service.http.check import Checking
    from headgate.service.http.original import Peers
    from headgate.service.http.replies import Headers, HttpOptions, Receive, Scope


# What is at `/`: the dashboard for people, a list of what there is for programs.


INDEX: Final = b"""Headgate: a rate limit decision service.

GET  /                    in a browser: the dashboard
POST /v1/check            a request described in JSON: may it go on?
ANY  /v1/authorize/...    the same for gateways: the request itself
GET  /v1/rate_limit       what a caller has left
POST /v1/reservations     hold an amount, settle it later
GET  /healthz, /readyz    alive; ready for requests
GET  /metrics             for Prometheus
ANY  /admin/v1/...        with a token: rules, history, live figures, explain
GET  /openapi.json        all of this in detail
"""
_VARY: Final = (b"vary", b"accept")


def overview(scope: Scope) -> Reply:
    """The dashboard if the caller takes HTML, as browsers do; else the list."""
    if "text/html" not in (header_of(scope, b"accept") or ""):
        return Reply(200, [TEXT_LINE, _VARY], INDEX)
    return page_reply(scope, _VARY)


# How a caller stands: every limit of it, without consuming any.


class Standing:
    """`/v1/rate_limit`: of who asks, or of whom a body describes."""

    def __init__(self, checking: Checking, peers: Peers, options: HttpOptions) -> None:
        self._checking = checking
        self._peers = peers
        self._options = options

    async def of_this(self, scope: Scope, _receive: Receive) -> Reply:
        """The limits of the caller who sent this very request, through a gateway or not."""
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
        core = self._checking.core
        concerns = core.rules.in_force.compiled.concerning(request)
        shown = [
            Shown(compiled_rule(one.rule), one.limits, one.plan)
            for one in concerns
            if one.rule.headers == "on"
        ]
        peek = peek_at(shown)
        try:
            replies = await self._checking.within_deadline(core.rules.engine.store.arun(peek))
        except StoreError:
            replies = unknown(peek)
        return Reply(200, [JSON_LINE, NO_STORE], page_of(shown, replies, core.clock()))


RESERVATIONS: Final = b"/v1/reservations"
COMMIT: Final = b"/commit"

Endpoint = Callable[["Scope", "Receive"], Awaitable[Reply]]
RlsJson = Callable[[bytes], Awaitable[tuple[int, bytes]]]
Metrics = Callable[[], Awaitable[str]]


class Endpoints:
    """By path and method, what answers."""

    def __init__(
        self,
        checking: Checking,
        peers: Peers,
        options: HttpOptions,
        rls_json: RlsJson | None,
        document: Mapping[str, object],
        metrics: Metrics | None = None,
    ) -> None:
        self._checking = checking
        self._options = options
        self._rls_json = rls_json
        self._told = metrics or _own_metrics
        self._reservations = Reservations(checking, options)
        standing = Standing(checking, peers, options)
        self._document = json.dumps(document).encode("ascii")
        self._table: dict[bytes, dict[str, Endpoint]] = {
            b"/v1/check": {"POST": self._check},
            b"/v1/rate_limit": {"GET": standing.of_this, "POST": standing.of_described},
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
        """What the endpoint at *path* says."""
        methods = self._table.get(path)
        if methods is None:
            if not path.startswith(RESERVATIONS + b"/"):
                raise RefusedError(problem(404, "no such path; /openapi.json has all there are"))
            methods = self._of_one(path[len(RESERVATIONS) + 1 :])
        endpoint = methods.get(scope["method"])
        if endpoint is None:
            allowed = ", ".join(sorted(methods))
            raise RefusedError(
                problem(
                    405,
                    f"{scope['method'][:40]} is not for this path; expected {allowed}",
                    headers=((b"allow", allowed.encode()),),
                )
            )
        return await endpoint(scope, receive)

    def _of_one(self, rest: bytes) -> dict[str, Endpoint]:
        """What can be done with the reservation that *rest* names."""

        async def commit(scope: Scope, receive: Receive) -> Reply:
            body = await body_of(scope, receive, self._options)
            document = document_of(body) if body else {}
            return await self._reservations.commit(rest.removesuffix(COMMIT), document)

        async def cancel(_scope: Scope, _receive: Receive) -> Reply:
            return await self._reservations.cancel(rest)

        return {"POST": commit} if rest.endswith(COMMIT) else {"DELETE": cancel}

    async def _check(self, scope: Scope, receive: Receive) -> Reply:
        body = await json_body_of(scope, receive, self._options)
        return await self._checking.check(body, scope)

    async def _reserve(self, scope: Scope, receive: Receive) -> Reply:
        document = document_of(await json_body_of(scope, receive, self._options))
        return await self._reservations.reserve(document, scope)

    async def _json(self, scope: Scope, receive: Receive) -> Reply:
        assert self._rls_json is not None  # noqa: S101 (else it has no path)
        # As with envoyproxy/ratelimit, whose users send it with a plain `curl -d`.
        body = await any_body_of(scope, receive, self._options)
        status, body = await self._rls_json(body)
        return Reply(status, [JSON_LINE, NO_STORE], body)

    async def _alive(self, _scope: Scope, _receive: Receive) -> Reply:
        return json_reply({"status": "alive"})

    async def _ready(self, _scope: Scope, _receive: Receive) -> Reply:
        core = self._checking.core
        if reasons := core.not_ready():
            return json_reply({"status": "not ready", "reasons": list(reasons)}, status=503)
        if trouble := core.trouble():
            return json_reply({"status": "ready", "reasons": list(trouble)})
        return json_reply({"status": "ready"})

    async def _metrics(self, _scope: Scope, _receive: Receive) -> Reply:
        text = await self._told()
        return Reply(200, [METRICS_LINE, NO_STORE], text.encode())

    async def _openapi(self, _scope: Scope, _receive: Receive) -> Reply:
        return Reply(200, [JSON_LINE], self._document)

    async def _index(self, scope: Scope, _receive: Receive) -> Reply:
        return overview(scope)

    async def _file(self, name: str, scope: Scope, _receive: Receive) -> Reply:
        return file_reply(scope, name)


async def _own_metrics() -> str:
    return MEASURES.text()
