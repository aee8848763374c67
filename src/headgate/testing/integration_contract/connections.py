"""The contract of connections: streams both ways, websockets, lifespan."""

from __future__ import annotations

from headgate.limits import Concurrency
from headgate.testing.capabilities import needs
from headgate.testing.integration_contract.app import Route
from headgate.testing.integration_contract.subject import IntegrationUnderTest, remaining

_SOCKET = "/socket"


class StreamContract(IntegrationUnderTest):
    """Bodies that come part by part."""

    def test_each_part_of_a_response_is_sent_before_the_next_is_made(self) -> None:
        self.start(Route(behaviour="stream"), limits="2/hour", name="api")
        exchange = self.open()
        assert remaining(exchange.start()) == {"api": 1}
        assert exchange.read() == b"one,"
        self.script.gate.open()
        assert exchange.finish_body() == b"two"

    @needs("reads_while_sending")
    def test_the_app_reads_the_body_of_a_request_while_it_is_sent(self) -> None:
        self.start(Route(behaviour="echo"), limits="2/hour", name="api")
        exchange = self.open(method="POST", length=8)
        exchange.send(b"half")
        assert remaining(exchange.start()) == {"api": 1}
        assert exchange.read() == b"half"
        exchange.send(b"rest", is_last=True)
        assert exchange.finish_body() == b"rest"

    def test_the_body_of_a_request_reaches_the_app_whole(self) -> None:
        self.start(Route(behaviour="reads"), limits="2/hour")
        exchange = self.open(method="POST", length=8)
        exchange.send(b"all ")
        exchange.send(b"here", is_last=True)
        assert exchange.finish().body == b"all here"

    @needs("reads_while_sending")
    def test_a_denial_does_not_wait_for_the_body_of_the_request(self) -> None:
        self.start(Route(behaviour="echo"), limits="1/hour")
        self.ask()
        exchange = self.open(method="POST", length=8)
        assert exchange.start().status == 429
        exchange.send(b"too late", is_last=True)

    def test_an_error_in_the_middle_of_a_stream_keeps_the_status_that_was_sent(self) -> None:
        self.start(Route(behaviour="breaks"), limits="2/hour", name="api")
        exchange = self.open()
        begun = exchange.start()
        assert (begun.status, remaining(begun)) == (200, {"api": 1})
        assert exchange.read() == b"one,"
        self.script.gate.open()
        assert exchange.finish_body() == b""


@needs("has_websockets")
class WebSocketContract(IntegrationUnderTest):
    """Websockets: the app answers each message with itself."""

    def test_a_websocket_is_accepted_with_headers_or_denied_before_that(self) -> None:
        self.start(Route(), limits="1/hour", name="api")
        first = self.running().websocket(_SOCKET, {})
        accepted = first.connect()
        assert (accepted.status, remaining(accepted)) == (101, {"api": 0})
        assert first.ask("hello") == "hello"
        first.close()
        denied = self.running().websocket(_SOCKET, {}).connect()
        assert denied.status == 429
        assert int(denied.headers["retry-after"]) >= 1

    def test_websockets_and_requests_share_the_limit_of_the_app(self) -> None:
        self.start(Route(), limits="1/hour")
        socket = self.running().websocket(_SOCKET, {})
        assert socket.connect().status == 101
        socket.close()
        assert self.ask().status == 429

    def test_a_websocket_has_its_slot_until_it_is_closed(self) -> None:
        self.start(Route(), limits=Concurrency(1, ttl=600))
        socket = self.running().websocket(_SOCKET, {})
        assert socket.connect().status == 101
        assert self.ask().status == 429
        socket.close()
        assert self.ask().status == 200

    def test_a_websocket_is_a_503_in_an_outage_if_the_limit_fails_closed(self) -> None:
        self.start(Route(), limits="1/hour", on_store_failure="fail_closed", store=self.remote)
        self.remote.is_gone = True
        assert self.running().websocket(_SOCKET, {}).connect().status == 503


class LifespanContract(IntegrationUnderTest):
    """The start and the end of an app."""

    @needs("has_lifespan")
    def test_the_store_is_closed_when_the_app_shuts_down(self) -> None:
        self.start(limits="1/hour", store=self.remote)
        assert self.ask().status == 200
        assert self.remote.closings.count == 0
        self.stop()
        assert self.remote.closings.count == 1
