"""The listeners of a worker: an ASGI app for HTTP, methods for gRPC, and their servers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from headgate.errors import OptionError
from headgate.service.container import http_options, rlqs_options, rls_options, tls_context

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable

    from headgate.service.container import ServiceContainer
    from headgate.service.grpc.health import Health
    from headgate.service.grpc.method import Methods, Streams
    from headgate.service.grpc.server import GrpcServer
    from headgate.service.http.replies import App
    from headgate.service.http_server import HttpServer
    from headgate.service.rlqs import LedgerStore, QuotaCalls
    from headgate.service.rls import RateLimitCalls


class Listeners:
    """The servers of a worker. Call `open` once, then `drain` once.

    Raises `OptionError` for a missing package or an unusable certificate.
    """

    def __init__(self, container: ServiceContainer) -> None:
        self._container = container
        self._settings = container.settings
        self._http: HttpServer | None = None
        self._grpc: list[GrpcServer] = []
        self._quota: QuotaCalls | None = None
        self._health: Health | None = None
        self._methods: Methods = {}
        self._streams: Streams = {}
        try:
            self._make()
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "headgate":
                raise
            message = (
                f"the service needs the package {error.name!r}: pip install 'headgate[service]'"
            )
            raise OptionError(message) from error

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
        """Let requests in flight finish within the drain time; false if some were cut off."""
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
        if self._health is not None:
            self._health.close()
        await asyncio.gather(*(server.drain(grace) for server in self._grpc))

    def _make(self) -> None:
        from headgate.service.http_server import Bounds, HttpServer
        from headgate.service.rls import RateLimitCalls

        settings = self._settings
        calls = RateLimitCalls(self._container.core, rls_options(settings))
        if settings.grpc:
            self._make_grpc(calls)
        if settings.http:
            self._http = HttpServer(
                make_app(self._container, calls),
                bounds=Bounds(
                    header=settings.max_header,
                    connections=settings.max_connections,
                    receive=settings.receive_timeout,
                    idle=settings.idle_timeout,
                ),
                context=tls_context(settings, "http"),
            )

    def _make_grpc(self, calls: RateLimitCalls) -> None:
        from headgate.service import rlqs, rls
        from headgate.service.grpc.health import CHECK, WATCH, Health

        core = self._container.core
        self._methods[rls.PATH] = calls.should_rate_limit
        if self._has_quotas:
            options = rlqs_options(self._settings)
            self._quota = rlqs.QuotaCalls(core, options, ledgers=self._ledgers())
            self._streams[rlqs.PATH] = self._quota.stream_usage
        paths = (*self._methods, *self._streams)
        self._health = Health(paths, is_serving=lambda: not core.not_ready())
        self._methods[CHECK], self._streams[WATCH] = self._health.check, self._health.watch
        self._new_grpc()  # reports what is missing or wrong before anything listens

    @property
    def _has_quotas(self) -> bool:
        """True if RLQS can be served: workers on shared memory have no ledger store to share."""
        return not self._settings.is_in_shared_memory or self._settings.workers == 1

    def _ledgers(self) -> LedgerStore | None:
        """The ledgers that replicas share; None if there is only one."""
        if self._settings.is_in_memory or self._settings.is_in_shared_memory:
            return None
        from headgate.service.rlqs.redis_ledgers import RedisLedgerStore

        return RedisLedgerStore(self._settings.store, namespace=self._settings.namespace)

    def _new_grpc(self) -> GrpcServer:
        from headgate.service.grpc.method import MEBIBYTE, GrpcLimits
        from headgate.service.grpc.server import GrpcServer

        most = self._settings.max_message
        limits = GrpcLimits(
            message_bytes=most,
            connection_bytes=max(4 * most, 16 * MEBIBYTE),
            server_bytes=max(8 * most, 256 * MEBIBYTE),
            connections=self._settings.max_connections,
        )
        context = tls_context(self._settings, "grpc")
        return GrpcServer(self._methods, self._streams, limits=limits, context=context)


def make_app(container: ServiceContainer, calls: RateLimitCalls) -> App:
    """Make the app with everything that is served over HTTP."""
    from headgate.service.admin.app import admin_paths, make_admin
    from headgate.service.admin.operations import SECURITY_SCHEMES
    from headgate.service.http import HttpApp
    from headgate.service.rls.http_endpoints import ratelimit_apps

    others: dict[str, App] = {}
    paths: dict[str, Any] = {}
    if container.source is not None and container.watcher is not None:
        others["/admin"] = make_admin(
            container.core,
            container.settings,
            container.source,
            container.watcher,
            container.live,
        )
        paths = admin_paths()
    if container.envoy is not None:
        others |= ratelimit_apps(container.core)
    return HttpApp(
        container.core,
        options=http_options(container.settings),
        others=others,
        json=calls.json,
        paths=paths,
        schemes=SECURITY_SCHEMES,
        metrics=container.live.text,
    )
