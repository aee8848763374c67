"""Every framework integration keeps the contract, in this process and over real servers."""

from tests.support.integrations.plain import AsgiContract, WsgiContract


class TestAsgi(AsgiContract):
    pass


class TestWsgi(WsgiContract):
    pass
