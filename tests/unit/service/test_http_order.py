"""What comes behind a request on its connection, against real sockets of this process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.service.http import HttpApp
from tests.support.http_app import core_of
from tests.support.http_server import GET, House, tried

LAST = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


class TestOrder:
    """Nothing that comes behind a request changes it, or its answer."""

    CHUNKED = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"

    def test_trailers_are_no_headers(self) -> None:
        async def trial(house: House) -> None:
            line = await house.line()
            line.say(self.CHUNKED + b"1\r\na\r\n0\r\nx-forwarded-for: 6.6.6.6\r\n\r\n")
            assert (await line.answer()).startswith(b"HTTP/1.1 200 ")
            assert [name for name, _ in house.app.headers] == [b"host", b"transfer-encoding"]

        tried(trial)

    def test_trailers_are_bounded(self) -> None:
        async def trial(house: House) -> None:
            line = await house.line()
            line.say(self.CHUNKED + b"0\r\na: ")
            await house.app.asked.wait()
            line.say(b"y" * 10_000)
            assert (await line.rest()).startswith(b"HTTP/1.1 431 ")

        tried(trial)

    def test_a_good_request_is_answered_before_a_bad_one_is_refused(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def trial(house: House) -> None:
            line = await house.line()
            line.say(GET + b"nonsense\r\n\r\n")
            heard = await line.rest()
            assert heard.startswith(b"HTTP/1.1 200 ")
            assert b"ok" + b"HTTP/1.1 400 " in heard

        tried(trial)
        assert not caplog.records

    def test_who_is_refused_amid_a_body_is_answered_once(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def trial(house: House) -> None:
            line = await house.line()
            line.say(self.CHUNKED)
            await house.app.asked.wait()
            line.say(b"no size\r\n")
            heard = await line.rest()
            assert heard.startswith(b"HTTP/1.1 400 ")
            assert heard.count(b"HTTP/1.1 ") == 1

        tried(trial)
        assert not caplog.records

    def test_an_app_that_does_not_wait_for_a_bad_body_answers_nobody(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def trial(house: House) -> None:
            line = await house.line()
            line.say(b"POST /v1/authorize/x HTTP/1.1\r\ntransfer-encoding: xchunked\r\n\r\n")
            heard = await line.rest()
            assert heard.startswith(b"HTTP/1.1 400 ")
            assert heard.count(b"HTTP/1.1 ") == 1

        tried(trial, app=HttpApp(core_of()))
        assert not caplog.records

    def test_nothing_is_expected_behind_connect(self) -> None:
        async def trial(house: House) -> None:
            line = await house.line()
            line.say(b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\n" + GET)
            heard = await line.rest()
            assert heard.startswith(b"HTTP/1.1 ")
            assert heard.count(b"HTTP/1.1 ") == 1
            assert b"connection: close" in heard

        tried(trial)

    @pytest.mark.parametrize("piece", [1, 7, 100_000])
    @pytest.mark.parametrize(
        ("framing", "sent", "read"),
        [
            (b"content-length: 9\r\n", b"the body.", b"the body."),
            (
                b"transfer-encoding: chunked\r\n",
                b"4\r\nthe \r\n5\r\nbody.\r\n0\r\n\r\n",
                b"the body.",
            ),
            (b"", b"", b""),
        ],
    )
    def test_a_request_to_upgrade_keeps_its_body_and_its_connection(
        self, framing: bytes, sent: bytes, read: bytes, piece: int
    ) -> None:
        bodies: list[bytes] = []

        async def app(_: Any, receive: Any, send: Any) -> None:
            body, has_more = b"", True
            while has_more:
                message = await receive()
                body += message["body"]
                has_more = message["more_body"]
            bodies.append(body)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"ok"})

        async def trial(house: House) -> None:
            line = await house.line()
            upgrade = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n"
            settings = b"http2-settings: AAMAAABk\r\n"
            head = b"POST /v1/check HTTP/1.1\r\nhost: x\r\n" + upgrade + settings + framing
            request = head + b"\r\n" + sent
            request += request + GET
            for start in range(0, len(request), piece):
                line.say(request[start : start + piece])
                await asyncio.sleep(0)
            for _ in range(3):
                assert (await line.answer()).startswith(b"HTTP/1.1 200 ")

        tried(trial, app=app)
        assert bodies == [read, read, b""]

    def test_a_request_to_upgrade_with_two_lengths_is_400(self) -> None:
        async def trial(house: House) -> None:
            line = await house.line()
            upgrade = b"connection: upgrade\r\nupgrade: h2c\r\n"
            lengths = b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n"
            line.say(b"POST / HTTP/1.1\r\nhost: x\r\n" + upgrade + lengths + b"0\r\n\r\n")
            heard = await line.rest()
            assert heard.startswith(b"HTTP/1.1 400 ")
            assert heard.count(b"HTTP/1.1 ") == 1

        tried(trial)

    def test_who_sends_far_too_much_hears_so(self) -> None:
        async def trial(house: House) -> None:
            line = await house.line()
            much = 5_000_000
            kind = b"content-type: application/json\r\n"
            length = b"content-length: %d\r\n\r\n" % much
            line.say(b"POST /v1/check HTTP/1.1\r\nhost: x\r\n" + kind + length + b"x" * much)
            line.say(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            heard = await line.rest()
            assert heard.startswith(b"HTTP/1.1 413 ")
            assert heard.count(b"HTTP/1.1 200 ") == 1

        tried(trial, app=HttpApp(core_of()))


class TestExchange:
    def test_requests_that_come_together_are_answered_in_their_order(self) -> None:
        async def trial(house: House) -> None:
            house.app.gate.clear()
            line = await house.line()
            line.say(GET * 20)
            await house.app.asked.wait()
            house.app.gate.set()
            for _ in range(20):
                assert (await line.answer()).startswith(b"HTTP/1.1 200 ")

        tried(trial)

    def test_a_client_that_waits_for_it_is_asked_for_the_body_once(self) -> None:
        async def trial(house: House) -> None:
            line = await house.line()
            head = (
                b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n"
            )
            line.say(head)
            await house.app.asked.wait()
            line.say(b"ab")
            line.say(b"cd" + LAST)
            heard = await line.rest()
            assert heard.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ")
            assert heard.count(b" 100 ") == 1

        tried(trial)

    @pytest.mark.parametrize("fails", [True, False])
    def test_an_app_without_a_response_is_500(
        self, fails: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def app(*_: object) -> None:
            if fails:
                raise ValueError("a bug")

        async def trial(house: House) -> None:
            line = await house.line()
            line.say(GET)
            assert (await line.rest()).startswith(b"HTTP/1.1 500 ")

        tried(trial, app=app)
        assert bool(caplog.records) == fails

    def test_a_status_may_have_no_phrase(self) -> None:
        async def app(_scope: object, _receive: object, send: Any) -> None:
            await send({"type": "http.response.start", "status": 529, "headers": []})
            await send({"type": "http.response.body", "body": b"ok"})

        async def trial(house: House) -> None:
            line = await house.line()
            line.say(GET)
            assert (await line.answer()).startswith(b"HTTP/1.1 529 \r\n")

        tried(trial, app=app)

    def test_a_response_gets_the_length_that_the_app_does_not_send(self) -> None:
        async def app(_scope: object, _receive: object, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"o", "more_body": True})
            await send({"type": "http.response.body", "body": b"k"})

        async def trial(house: House) -> None:
            line = await house.line()
            line.say(GET)
            assert b"\r\ncontent-length: 2\r\n\r\nok" in await line.answer()

        tried(trial, app=app)
