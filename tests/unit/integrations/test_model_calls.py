"""Calls of language models through the ASGI middleware: reserved before, settled after."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from headgate.integrations.asgi import RateLimitMiddleware
from headgate.policy.loader import read_policy
from headgate.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

POLICY = """
version: 1
prices: {"*": {input: 10, output: 20}}
rules:
  - id: tokens
    match: {endpoint: [/v1/chat/completions, /v1/messages], model: m-*}
    key_by: tenant
    limit: 1000/hour
    cost: {llm: {count: tokens, default_output: 300}}
  - {id: spend, match: {endpoint: /v1/**}, key_by: tenant, limit: 1 usd/day, cost: {llm: spend}}
"""
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
STREAM = (
    b'data: {"choices": [{"delta": {"content": "hi"}}]}\n\n',
    b'data: {"choices": [], "usage": ' + json.dumps(USAGE).encode() + b"}\n\n",
    b"data: [DONE]\n\n",
)


class Model:
    """An app that answers as its `answer` says, and keeps the bodies that it received."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.status = 200
        self.kind = b"application/json"
        self.parts: tuple[bytes, ...] = (json.dumps({"usage": USAGE}).encode(),)
        self.fails = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.received.append(body)
        headers = [(b"content-type", self.kind)]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        for part in self.parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        if self.fails:
            raise RuntimeError("the model is gone")
        await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def call(model: Model) -> Callable[..., httpx.Response]:
    app = RateLimitMiddleware(model, policy=read_policy(POLICY), clock=ManualClock(3_600))

    def send(
        data: Any = None, *, path: str = "/v1/chat/completions", body: Any = None
    ) -> httpx.Response:
        async def sending() -> httpx.Response:
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
                content = json.dumps(data).encode() if body is None else body
                return await client.post(path, content=content, headers={"x-tenant-id": "a"})

        return asyncio.run(sending())

    return send


def left(response: httpx.Response) -> int:
    return int(response.headers["x-ratelimit-remaining-tokens"])


ASKED = {"model": "m-1", "max_tokens": 300}
NEXT = {"model": "m-1", "max_tokens": 1}


def test_the_estimate_is_reserved_and_the_usage_charged(
    call: Callable[..., httpx.Response], model: Model
) -> None:
    size = len(json.dumps(ASKED))
    assert left(call(ASKED)) == 1000 - 300 - -(-size // 4)
    assert left(call(NEXT)) == 1000 - 15 - 1 - -(-len(json.dumps(NEXT)) // 4)
    assert model.received[0] == json.dumps(ASKED).encode()


def test_a_stream_passes_as_it_comes_and_is_charged_by_its_last_event(
    call: Callable[..., httpx.Response], model: Model
) -> None:
    model.kind, model.parts = b"text/event-stream", STREAM
    assert call({**ASKED, "stream": True}).content == b"".join(STREAM)
    assert left(call(NEXT)) == 1000 - 15 - 1 - -(-len(json.dumps(NEXT)) // 4)


@pytest.mark.parametrize(
    ("status", "parts", "charged"),
    [
        (200, (b"{}",), None),  # no usage: the estimate stays charged
        (200, (b'{"usage": {"prompt_tokens": -1}}',), None),
        (400, (b"{}",), 0),  # no model has worked for it
        (500, (b"",), 0),
    ],
)
def test_without_usage_the_estimate_stays_charged_unless_it_is_an_error(
    call: Callable[..., httpx.Response],
    model: Model,
    status: int,
    parts: tuple[bytes, ...],
    charged: int | None,
) -> None:
    model.status, model.parts = status, parts
    reserved = 300 + -(-len(json.dumps(ASKED)) // 4)
    call(ASKED)
    cost = reserved if charged is None else charged
    assert left(call(NEXT)) == 1000 - cost - 1 - -(-len(json.dumps(NEXT)) // 4)


def test_a_stream_that_is_cut_costs_the_estimate(
    call: Callable[..., httpx.Response], model: Model
) -> None:
    model.kind, model.parts, model.fails = b"text/event-stream", STREAM[:1], True
    call({**ASKED, "stream": True})
    model.fails = False
    reserved = 300 + -(-len(json.dumps({**ASKED, "stream": True})) // 4)
    assert left(call(NEXT)) == 1000 - reserved - 1 - -(-len(json.dumps(NEXT)) // 4)


def test_a_damaged_body_is_a_call_of_any_model_and_reaches_the_app_as_it_is(
    call: Callable[..., httpx.Response], model: Model
) -> None:
    model.parts = (b"{}",)
    assert left(call(body=b'{"model": "m-1", ')) == 1000 - 300 - 5
    assert model.received == [b'{"model": "m-1", ']


def test_a_body_that_is_too_long_to_read_reaches_the_app_as_it_is(
    call: Callable[..., httpx.Response], model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("integrations.model_calls", "llm.call"):
        monkeypatch.setattr(f"headgate.{module}.MAX_BODY", 100)
    body = json.dumps({"model": "other", "messages": "x" * 400}).encode()
    assert left(call(body=body)) == 1000 - 300 - -(-len(body) // 4)
    assert model.received == [body]


def test_another_model_is_not_limited_by_the_rule(call: Callable[..., httpx.Response]) -> None:
    response = call({"model": "other"})
    assert "x-ratelimit-remaining-tokens" not in response.headers
    assert response.headers["x-ratelimit-limit"] == "1000000"


def test_a_denial_speaks_the_protocol_of_openai(
    call: Callable[..., httpx.Response], model: Model
) -> None:
    response = call({"model": "m-1", "max_tokens": 5000})
    assert response.status_code == 429
    assert response.json()["error"] == {
        "message": "This request is more than its limit of 1000 tokens per hour allows."
        " Waiting does not help.",
        "type": "tokens",
        "param": None,
        "code": "rate_limit_exceeded",
    }
    assert response.headers["x-should-retry"] == "false"
    assert not model.received


def test_a_denial_speaks_the_protocol_of_anthropic(call: Callable[..., httpx.Response]) -> None:
    call({"model": "m-1", "max_tokens": 950}, path="/v1/messages")
    response = call({"model": "m-1", "max_tokens": 990}, path="/v1/messages")
    assert response.status_code == 429
    assert response.json()["error"]["type"] == "rate_limit_error"
    assert response.headers["anthropic-ratelimit-tokens-limit"] == "1000"
    assert response.headers["anthropic-ratelimit-tokens-reset"].startswith("1970-01-01T01:")
    assert "retry-after" in response.headers


def test_a_budget_in_dollars_is_shown_in_dollars(call: Callable[..., httpx.Response]) -> None:
    response = call({"model": "other", "max_tokens": 60_000})
    assert response.status_code == 429
    error = response.json()["error"]
    assert error["code"] == "insufficient_quota"
    assert "1 usd per day" in error["message"]


def test_concurrent_calls_do_not_overspend(model: Model) -> None:
    app = RateLimitMiddleware(model, policy=read_policy(POLICY), clock=ManualClock(3_600))

    async def sending() -> list[int]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
            calls = [
                client.post("/v1/messages", json=ASKED, headers={"x-tenant-id": "a"})
                for _ in range(50)
            ]
            return [one.status_code for one in await asyncio.gather(*calls)]

    model.parts = (b"{}",)  # so that each costs what was reserved
    assert asyncio.run(sending()).count(200) == 3


def test_a_redacted_rule_says_nothing_but_the_denial(model: Model) -> None:
    text = POLICY.replace("limit: 1000/hour", "limit: 1000/hour\n    headers: redacted")
    app = RateLimitMiddleware(model, policy=read_policy(text), clock=ManualClock(3_600))

    async def sending() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
            asked = {"model": "m-1", "max_tokens": 5000}
            return await client.post("/v1/messages", json=asked)

    response = asyncio.run(sending())
    assert response.status_code == 429
    assert not [name for name in response.headers if "retry" in name or "ratelimit" in name]
