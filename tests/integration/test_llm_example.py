"""The LLM proxy of the examples: nobody overspends, however many ask at once."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import httpx

from tests.support.servers import RedisServer, wait_until
from tests.support.uvicorn_apps import EXAMPLES, script

if TYPE_CHECKING:
    from pathlib import Path

PROXY = EXAMPLES / "llm_proxy.py"
CHAT = "/v1/chat/completions"
ACME = {"authorization": "Bearer key-acme"}
BLUE = {"authorization": "Bearer key-blue"}
NEVER = "30"
"""Seconds a token, for answers that outlast any test."""


def chat(max_tokens: int, *, stream: bool = False) -> dict[str, Any]:
    """A prompt of five tokens."""
    said = [{"content": "one two three four five"}]
    return {"messages": said, "max_tokens": max_tokens, "stream": stream}


async def open_at_once(urls: list[str], max_tokens: int) -> list[int]:
    """Ask all of *urls* for a stream at once; the statuses, then all hang up."""
    async with AsyncExitStack() as stack:
        limits = httpx.Limits(max_connections=len(urls))
        client = await stack.enter_async_context(httpx.AsyncClient(timeout=60, limits=limits))

        async def ask(url: str) -> int:
            asked = client.stream(
                "POST", url + CHAT, json=chat(max_tokens, stream=True), headers=ACME
            )
            response = await stack.enter_async_context(asked)
            return response.status_code

        return list(await asyncio.gather(*map(ask, urls)))


def is_admitted(url: str, max_tokens: int) -> bool:
    """Whether there is room for so many tokens. (It takes place if there is, for a moment.)"""
    with httpx.stream(
        "POST", url + CHAT, json=chat(max_tokens, stream=True), headers=ACME, timeout=60
    ) as response:
        return response.status_code == 200


def test_fifty_at_once_get_no_more_than_the_budget_of_ten(tmp_path: Path) -> None:
    budget = {"BUDGET_TOKENS": "1000/day", "BUDGET_STREAMS": "100", "SECONDS_A_TOKEN": NEVER}
    with script(PROXY, tmp_path / "log", **budget) as url:
        statuses = asyncio.run(open_at_once([url] * 50, max_tokens=95))
        assert (statuses.count(200), statuses.count(429)) == (10, 40)
        # They hung up having used the five tokens of their prompts, and the rest came back.
        wait_until(lambda: is_admitted(url, 900), "what was not used is given back")


def test_two_proxies_share_the_budget_over_redis(tmp_path: Path) -> None:
    budget = {"BUDGET_TOKENS": "1000/day", "BUDGET_STREAMS": "100", "SECONDS_A_TOKEN": NEVER}
    with (
        RedisServer() as redis,
        script(PROXY, tmp_path / "one", HEADGATE_STORE=redis.url, **budget) as one,
        script(PROXY, tmp_path / "two", HEADGATE_STORE=redis.url, **budget) as two,
    ):
        statuses = asyncio.run(open_at_once([one, two] * 25, max_tokens=95))
        assert (statuses.count(200), statuses.count(429)) == (10, 40)
        wait_until(lambda: is_admitted(two, 900), "what was not used is given back")


def test_an_answer_costs_what_it_used(tmp_path: Path) -> None:
    budget = {"BUDGET_TOKENS": "200/day", "SECONDS_A_TOKEN": "0"}
    with (
        script(PROXY, tmp_path / "log", **budget) as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        # Each may take 100 and takes 10; after 11 of them fewer than 100 are left.
        asked = [client.post(CHAT, json=chat(95), headers=ACME) for _ in range(12)]
        assert [reply.status_code for reply in asked] == [200] * 11 + [429]
        assert asked[0].json()["usage"] == {
            "prompt_tokens": 5,
            "completion_tokens": 5,
            "total_tokens": 10,
        }
        assert asked[11].json()["limit"] == "tokens"
        assert '"tokens";r=90' in asked[11].headers["ratelimit"]
        assert client.post(CHAT, json=chat(95), headers=BLUE).status_code == 200
        assert client.post(CHAT, json=chat(95)).status_code == 401
        assert client.post(CHAT, json={"messages": 3}, headers=BLUE).status_code == 400
        streamed = client.post(CHAT, json=chat(5, stream=True), headers=BLUE)
        assert '"usage": {"prompt_tokens": 5' in streamed.text


def test_only_so_many_answers_are_written_at_the_same_time(tmp_path: Path) -> None:
    budget = {"BUDGET_STREAMS": "3", "SECONDS_A_TOKEN": NEVER}
    with script(PROXY, tmp_path / "log", **budget) as url:
        statuses = asyncio.run(open_at_once([url] * 5, max_tokens=5))
        assert sorted(statuses) == [200, 200, 200, 429, 429]
        wait_until(lambda: is_admitted(url, 5), "who hung up is no longer counted")
