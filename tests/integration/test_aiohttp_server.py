"""The example of an aiohttp server on its own server, with real clients."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import aiohttp
import httpx
import pytest

from tests.support.servers import RedisServer, wait_until
from tests.support.uvicorn_apps import EXAMPLES, script

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with (
        RedisServer() as store,
        script(EXAMPLES / "aiohttp_app.py", tmp_path / "log", HEADGATE_STORE=store.url) as url,
    ):
        yield url


def test_the_app_does_what_it_says(url: str) -> None:
    with httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
        first = client.get("/")
        assert first.headers["RateLimit-Policy"] == '"default";q=100;w=60'
        assert "RateLimit" not in client.get("/health").headers
        right = [client.post("/login", data={"password": "open sesame"}) for _ in range(6)]
        assert [one.status_code for one in right] == [200] * 6
        wrong = [client.post("/login").status_code for _ in range(6)]
        assert wrong == [401] * 5 + [429]
        assert client.get("/rate_limit").json()["limits"][0]["name"] == "default"
        # 200 words are held, and as many as were sent are charged
        assert client.get("/words/2?user=ann").text == "word 1\nword 2\n"
        shown = client.get("/words/1?user=ann").headers["RateLimit"].split(", ")
        (left,) = [part.split(";")[1] for part in shown if part.startswith('"words"')]
        assert int(left.removeprefix("r=")) >= 798


def test_a_client_that_goes_away_releases_its_slot(url: str) -> None:
    with httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
        port = httpx.URL(url).port
        assert port is not None
        streams = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
        for one in streams:
            one.sendall(b"GET /words/100000?user=bob HTTP/1.1\r\nHost: example\r\n\r\n")
            assert b"200 OK" in one.recv(1000)
        assert client.get("/words/1?user=bob").status_code == 429
        streams[0].close()
        wait_until(
            lambda: client.get("/words/1?user=bob").status_code == 200, "the slot is released"
        )
        streams[1].close()


def test_a_websocket_holds_its_slot_until_it_closes(url: str) -> None:
    async def main() -> None:
        async with aiohttp.ClientSession(url) as session:
            async with session.ws_connect("/echo") as first:
                await first.send_str("hi")
                assert await first.receive_str() == "hi"
                with pytest.raises(aiohttp.WSServerHandshakeError) as denied:
                    await session.ws_connect("/echo")
                assert denied.value.status == 429
            async with session.ws_connect("/echo") as second:
                await second.send_str("again")
                assert await second.receive_str() == "again"

    asyncio.run(main())
