"""Every framework integration keeps the contract, in this process and over real servers."""

from tests.support.integrations.flask import FlaskContract
from tests.support.integrations.plain import AsgiContract, WsgiContract
from tests.support.integrations.starlette import (
    FastApiContract,
    FastApiDependencyContract,
    StarletteContract,
)


class TestAsgi(AsgiContract):
    pass


class TestWsgi(WsgiContract):
    pass


class TestStarlette(StarletteContract):
    pass


class TestFastApi(FastApiContract):
    pass


class TestFastApiDependency(FastApiDependencyContract):
    pass


class TestFlask(FlaskContract):
    pass
