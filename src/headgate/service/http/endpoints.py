"""The endpoints that have a path of their own, and what each does."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from headgate.observability import MEASURES
from headgate.service.http.dashboard import NAMES, PREFIX, file_reply
from headgate.service.http.documents import document_of
from headgate.service.http.overview import overview
from headgate.service.http.receiving import any_body_of, body_of, json_body_of
from headgate.service.http.replies import (
    JSON_LINE,
    METRICS_LINE,
    NO_STORE,
    RefusedError,
    Reply,
    json_reply,
    problem,
)
from headgate.service.http.reservations import Reservations
from headgate.service.http.standing import Standing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.service.http.checking import Checking
    from headgate.service.http.options import HttpOptions
    from headgate.service.http.original import Peers
    from headgate.service.http.replies import Receive, Scope

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
