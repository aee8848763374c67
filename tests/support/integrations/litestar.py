"""Litestar apps of the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, cast

from litestar import Litestar, Request, Router, WebSocket, route, websocket
from litestar.exceptions import PermissionDeniedException, WebSocketDisconnect
from litestar.response import Response, Stream

from headgate.integrations.litestar import RateLimitPlugin, exempt, limit, report
from headgate.testing.integration_contract import IntegrationContract, native_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.testing.integration_contract import Answer, AppSpec, Route

AnyRequest = Request[Any, Any, Any]


class LitestarCall:
    """A request of Litestar."""

    def __init__(self, request: AnyRequest) -> None:
        self._request = request

    def header(self, name: str) -> str | None:
        return self._request.headers.get(name)

    def parts(self) -> AsyncIterator[bytes]:
        return cast("AsyncIterator[bytes]", self._request.stream())

    def report(self, amounts: Mapping[str, int]) -> None:
        report(self._request, amounts)

    def forbid(self) -> Answer:
        raise PermissionDeniedException


def response_of(answer: Answer) -> Response[Any]:
    """The response of Litestar for *answer*."""
    if isinstance(answer.body, AsyncIterator):
        return Stream(answer.body, status_code=answer.status, headers=dict(answer.headers))
    return Response(
        cast("bytes", answer.body), status_code=answer.status, headers=dict(answer.headers)
    )


@websocket("/socket")
async def echo(socket: WebSocket[Any, Any, Any]) -> None:
    """Answer each message with itself."""
    await socket.accept()
    try:
        while True:
            await socket.send_text(await socket.receive_text())
    except WebSocketDisconnect:
        return


class LitestarContract(IntegrationContract):
    """The plugin, and `limit` as a guard of handlers."""

    interface = "asgi"
    has_websockets = has_lifespan = can_cancel = True
    reads_while_sending = False  # its streams read what comes, to notice a disconnect
    sees_unrouted = False  # Litestar finds the route, and answers OPTIONS, before its middlewares

    def build(self, spec: AppSpec) -> Any:
        handlers: list[Any] = [echo]
        for one in spec.routes:
            handler = _handler(spec, one)
            handlers.append(Router(one.mount, route_handlers=[handler]) if one.mount else handler)
        return Litestar(handlers, plugins=[RateLimitPlugin(**spec.options)], openapi_config=None)


def _handler(spec: AppSpec, one: Route) -> Any:
    async def handler(request: AnyRequest) -> Response[Any]:
        return response_of(await spec.script.aplay(one.behaviour, LitestarCall(request)))

    handler.__annotations__ = {"request": AnyRequest, "return": Response[Any]}
    guards: list[Any] = []
    if one.limit is not None:
        guards.append(limit(**native_options(one.limit, lambda request: request.headers)))
    path = one.path.replace("}", ":str}")
    made = route(path, http_method=["GET", "POST", "HEAD"], guards=guards, status_code=200)
    return made(exempt(handler) if one.is_exempt else handler)
