"""Every framework integration keeps the contract, in this process and over real servers."""

from typing import Any

from tests.support.integrations.aiohttp import AiohttpContract
from tests.support.integrations.celery import CeleryContract
from tests.support.integrations.django import AsyncDjangoContract, DjangoContract, DrfContract
from tests.support.integrations.flask import FlaskContract
from tests.support.integrations.grpc import GrpcContract
from tests.support.integrations.http_servers import GunicornServer, UvicornServer
from tests.support.integrations.litestar import LitestarContract
from tests.support.integrations.plain import AsgiContract, WsgiContract
from tests.support.integrations.starlette import (
    FastApiAloneContract,
    FastApiContract,
    FastApiDependencyContract,
    StarletteAloneContract,
    StarletteAroundContract,
    StarletteContract,
)


class TestAsgi(AsgiContract):
    pass


class TestWsgi(WsgiContract):
    pass


class TestStarlette(StarletteContract):
    pass


class TestStarletteInsideMiddleware(StarletteAroundContract):
    pass


class TestStarletteWithoutMiddleware(StarletteAloneContract):
    pass


class TestFastApi(FastApiContract):
    pass


class TestFastApiWithoutMiddleware(FastApiAloneContract):
    pass


class TestFastApiDependency(FastApiDependencyContract):
    pass


class TestFlask(FlaskContract):
    pass


class TestDjango(DjangoContract):
    pass


class TestAsyncDjango(AsyncDjangoContract):
    pass


class TestDjangoWithoutMiddleware(DjangoContract):
    has_app_limits = False
    answers_http_errors = False  # Django answers them outside of the view


class TestAsyncDjangoWithoutMiddleware(AsyncDjangoContract):
    has_app_limits = False
    answers_http_errors = False  # Django answers them outside of the view


class TestDrf(DrfContract):
    pass


class TestLitestar(LitestarContract):
    pass


class TestAiohttp(AiohttpContract):
    pass


class TestGrpc(GrpcContract):
    pass


class TestCelery(CeleryContract):
    pass


class TestAsgiOnUvicorn(AsgiContract):
    can_cancel = False

    def serve(self, app: Any) -> UvicornServer:
        return UvicornServer(app, has_lifespan=True)


class TestStarletteOnUvicorn(StarletteContract):
    can_cancel = False
    reads_while_sending = False  # there, a streaming response of Starlette reads what comes

    def serve(self, app: Any) -> UvicornServer:
        return UvicornServer(app, has_lifespan=True)


class TestFlaskOnGunicorn(FlaskContract):
    reads_while_sending = False  # gunicorn reads up to 1024 bytes of a body at once

    def serve(self, app: Any) -> GunicornServer:
        return GunicornServer(app)
