"""What comes behind a request on its connection, against real sockets of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.service.http import HttpApp
from tests.support.http_app import core_of
from tests.support.http_server import GET, House, tried

if TYPE_CHECKING:
    import pytest


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

    def test_nothing_is_expected_behind_a_request_to_upgrade(self) -> None:
        async def trial(house: House) -> None:
            line = await house.line()
            upgrade = b"connection: upgrade\r\nupgrade: websocket\r\n\r\n"
            line.say(b"GET / HTTP/1.1\r\nhost: x\r\n" + upgrade + GET)
            heard = await line.rest()
            assert heard.startswith(b"HTTP/1.1 200 ")
            assert b"connection: close" in heard

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
