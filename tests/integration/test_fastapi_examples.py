"""The examples of FastAPI and Starlette, run as a reader would run them."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import httpx
import pytest
import websockets
from websockets.exceptions import InvalidStatus

from tests.support.uvicorn_apps import EXAMPLES, script

if TYPE_CHECKING:
    from pathlib import Path


def test_the_example_of_fastapi_does_what_it_says(tmp_path: Path) -> None:
    with (
        script(EXAMPLES / "fastapi_app.py", tmp_path / "log") as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        assert "ratelimit" not in client.get("/health").headers

        found = [client.get("/search?q=water") for _ in range(6)]
        assert [reply.status_code for reply in found] == [200] * 5 + [429]
        assert found[0].json() == {"found": "nothing about water"}
        assert found[0].headers["x-ratelimit-limit"] == "5"
        assert found[5].json()["limit"] == "search"
        assert 1 <= int(found[5].headers["retry-after"]) <= 12
        paid = client.get("/search?q=water", headers={"x-tier": "paid"})
        assert paid.status_code == 200

        right, wrong = ({"user": "ali", "password": word} for word in ("open sesame", "no"))
        assert [client.post("/login", json=right).status_code for _ in range(6)] == [200] * 6
        tried = [client.post("/login", json=wrong).status_code for _ in range(6)]
        assert tried == [401] * 5 + [429]

        # Each sets 500 of 1000 aside, and uses 4.
        chats = [client.get("/chat") for _ in range(3)]
        assert [chat.text for chat in chats] == ["to whom it concerns"] * 3
        (left,) = re.findall(r'"tokens";r=(\d+)', chats[2].headers["ratelimit"])
        assert 492 <= int(left) < 500


def test_the_example_of_starlette_does_what_it_says(tmp_path: Path) -> None:
    async def live(url: str) -> int:
        for text in ("one", "two"):
            async with websockets.connect(url) as socket:
                await socket.send(text)
                assert await socket.recv() == text
        with pytest.raises(InvalidStatus) as refused:
            await websockets.connect(url)
        return refused.value.response.status_code

    with (
        script(EXAMPLES / "starlette_app.py", tmp_path / "log") as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        assert "ratelimit" not in client.get("/health").headers
        for user in ("ali", "eve"):
            asked = [client.get("/search?q=water", headers={"x-user": user}) for _ in range(6)]
            assert [reply.status_code for reply in asked] == [200] * 5 + [429]
        assert [client.get("/export/6").status_code for _ in range(2)] == [200, 429]
        assert client.get("/export/3").text == "page\n" * 3
        assert asyncio.run(live(url.replace("http", "ws") + "/live")) == 429
