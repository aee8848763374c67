"""The ways into a worker: an ASGI app for HTTP, methods for gRPC, and the servers under them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from headgate.errors import OptionError
from headgate.service import container

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable

    from headgate.service.container import Parts
    from headgate.service.grpc.method import GrpcServer, Kind, Methods, Streams
    from headgate.service.http.replies import App
    from headgate.service.http_server import HttpServer
    from headgate.service.rlqs import LedgerStore, QuotaCalls
    from headgate.service.rls import RateLimitCalls


class Doors:
    """What listens for a worker with these *parts*. `open` once, then `drain` once.

    Raises `OptionError` for a package that is missing, or a certificate that cannot be used.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._settings = parts.settings
        self._http: HttpServer | None = None
        self._grpc: list[GrpcServer] = []
        self._quota: QuotaCalls | None = None
        self._methods: Methods = {}
        self._streams: Streams = {}
        try:
            self._make()
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "headgate":
                raise
            told = f"the service needs the package {error.name!r}: pip install 'headgate[service]'"
            raise OptionError(told) from error

    async def open(self, http: Iterable[socket.socket], grpc: Iterable[socket.socket]) -> None:
        """Serve on sockets that listen already."""
        if self._quota is not None:
            await self._quota.start()
        for sock in grpc:
            server = self._new_grpc()
            await server.start(sock)
            self._grpc.append(server)
        if self._http is not None:
            await self._http.start(http)

    async def drain(self) -> bool:
        """Let everything under way finish, as long as the settings say; whether all could."""
        linger, grace = self._settings.linger, self._settings.drain
        closing = asyncio.create_task(self._drain_grpc(linger, grace))
        is_done = True
        if self._http is not None:
            is_done = await self._http.drain(linger=linger, grace=grace)
        await closing
        return is_done

    async def _drain_grpc(self, linger: float, grace: float) -> None:
        await asyncio.sleep(linger)
        if self._quota is not None:
            await self._quota.aclose()
        await asyncio.gather(*(server.drain(grace) for server in self._grpc))

    def _make(self) -> None:
        from headgate.service.http_server import HttpServer
        from headgate.service.rls import RateLimitCalls

        settings = self._settings
        calls = RateLimitCalls(self._parts.core, container.rls_options(settings))
        if settings.grpc:
            self._make_grpc(calls)
        if settings.http:
            self._http = HttpServer(
                make_app(self._parts, calls),
                bounds=container.bounds(settings),
                context=container.https_context(settings),
            )

    def _make_grpc(self, calls: RateLimitCalls) -> None:
        from headgate.service import rlqs, rls

        self._methods[rls.PATH] = calls.should_rate_limit
        if self._has_quotas:
            options = container.rlqs_options(self._settings)
            self._quota = rlqs.QuotaCalls(self._parts.core, options, ledgers=self._board())
            self._streams[rlqs.PATH] = self._quota.stream_usage
        self._new_grpc()  # what is missing or wrong is told now, before anything listens

    @property
    def _has_quotas(self) -> bool:
        """Whether quotas (RLQS) can be served: workers that share memory have no board to share."""
        return not self._settings.is_in_shared_memory or self._settings.workers == 1

    def _board(self) -> LedgerStore | None:
        """Where replicas tell each other what their gateways have; None if there is only one."""
        if self._settings.is_in_memory or self._settings.is_in_shared_memory:
            return None
        from headgate.service.rlqs.redis_ledgers import RedisLedgerStore

        return RedisLedgerStore(self._settings.store, namespace=self._settings.namespace)

    def _new_grpc(self) -> GrpcServer:
        from headgate.service.grpc.method import open_server

        settings = self._settings
        return open_server(
            cast("Kind", settings.grpc_transport),
            self._methods,
            self._streams,
            limits=container.grpc_limits(settings),
            tls=container.grpc_tls(settings),
        )


def make_app(parts: Parts, calls: RateLimitCalls) -> App:
    """Everything that is served over HTTP."""
    from headgate.service.admin.app import admin_paths
    from headgate.service.admin.operations import SECURITY_SCHEME, SECURITY_SCHEMES
    from headgate.service.administration import make_admin
    from headgate.service.http import HttpApp

    others: dict[str, App] = {}
    paths: dict[str, Any] = {}
    if parts.source is not None and parts.watcher is not None:
        others["/admin"] = make_admin(
            parts.core, parts.settings, parts.source, parts.watcher, picture=parts.live
        )
        paths = admin_paths(security=SECURITY_SCHEME)
    return HttpApp(
        parts.core,
        options=container.http_options(parts.settings),
        others=others,
        json=calls.json,
        paths=paths,
        schemes=SECURITY_SCHEMES,
        metrics=parts.live.text,
    )
