"""An LLM proxy that no tenant can overspend: `python examples/llm_proxy.py`, then

    curl -N localhost:8000/v1/chat/completions -H 'Authorization: Bearer key-acme' \\
      -d '{"max_tokens": 40, "stream": true, "messages": [{"content": "Why is the sky blue?"}]}'

Each tenant has limits on requests and tokens a minute, money a day, and concurrent responses. The
tokens of a response are known when it is complete. So the proxy holds the most that it may take
before it begins, and settles what it took when it ends, also for streams and for clients that
disconnect. All four limits are one check, all or nothing.

The model is simulated: it repeats the prompt word by word.
To run it: pip install fastapi uvicorn.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from headgate import Concurrency
from headgate.integrations.fastapi import RateLimitMiddleware, limit, report

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TENANTS = {"key-acme": "acme", "key-blue": "blue"}
MICRODOLLARS_A_TOKEN = 3
TOKEN = re.compile(r"\S{1,12}")
MOST_TOKENS = 1_000
"""The longest answer, of those who do not say."""

LONGEST_ANSWER = 240
"""Seconds after which an answer is cut off: before what is held for it lapses."""
HELD_FOR = 300


@dataclass(frozen=True)
class Budget:
    """What each tenant has."""

    requests: str = "60/minute"
    tokens: str = "20000/minute"
    spend: str = "5000000/day fixed_window"  # in millionths of a dollar
    streams: int = 20


def tenant(request: Request) -> str:
    """The tenant whose budget pays for *request*; 401 without one."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or key not in TENANTS:
        raise HTTPException(401, "no such key", {"WWW-Authenticate": "Bearer"})
    return TENANTS[key]


async def most_tokens(request: Request) -> int:
    """What the answer may take at most, with its prompt."""
    asked = await question(request)
    return len(asked.prompt) + asked.max_tokens


async def most_spend(request: Request) -> int:
    return await most_tokens(request) * MICRODOLLARS_A_TOKEN


@dataclass(frozen=True)
class Question:
    prompt: list[str]
    max_tokens: int
    is_streamed: bool


async def question(request: Request) -> Question:
    """What is asked; the body is read once and kept by the request."""
    try:
        body = await request.json()
        text = " ".join(message["content"] for message in body["messages"])
        text.encode()  # half a character cannot be sent back
        prompt = TOKEN.findall(text)
        max_tokens = body.get("max_tokens", MOST_TOKENS)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise HTTPException(400, f"not a chat: {error!r}") from error
    if type(max_tokens) is not int or not 0 < max_tokens <= MOST_TOKENS:
        raise HTTPException(400, f"max_tokens: expected a whole number from 1 to {MOST_TOKENS}")
    return Question(prompt, max_tokens, bool(body.get("stream", False)))


async def model(asked: Question) -> AsyncIterator[str]:
    """A pretend model: it says the prompt back, at most so many tokens of it."""
    started = time.monotonic()
    for word in asked.prompt[: asked.max_tokens]:
        if time.monotonic() - started > LONGEST_ANSWER:
            return
        await asyncio.sleep(float(os.environ.get("SECONDS_A_TOKEN", "0.01")))
        yield word


def used(request: Request, asked: Question, answered: int) -> dict[str, int]:
    """Report what has been used so far, and say it as clients know it."""
    total = len(asked.prompt) + answered
    report(request, tokens=total, spend=total * MICRODOLLARS_A_TOKEN)
    return {
        "prompt_tokens": len(asked.prompt),
        "completion_tokens": answered,
        "total_tokens": total,
    }


async def events(request: Request, asked: Question) -> AsyncIterator[str]:
    """The answer as server-sent events; the last says what was used."""
    answered = 0
    usage = used(request, asked, 0)
    async for word in model(asked):
        answered += 1
        usage = used(request, asked, answered)  # what a client that hangs up has to pay
        yield f"data: {json.dumps({'delta': word})}\n\n"
    yield f"data: {json.dumps({'usage': usage})}\n\ndata: [DONE]\n\n"


def create_app(budget: Budget | None = None, store: str = "memory://") -> FastAPI:
    """The proxy; with a Redis as its *store* any number of them share the budgets."""
    app = FastAPI(title="LLM proxy")
    app.add_middleware(RateLimitMiddleware, store=store)
    own = budget or Budget()

    @app.post("/v1/chat/completions")
    @limit(own.requests, key=tenant, name="requests")
    @limit(own.tokens, key=tenant, name="tokens", cost=most_tokens, is_estimate=True, ttl=HELD_FOR)
    @limit(
        own.spend,
        key=tenant,
        name="spend",
        cost=most_spend,
        is_estimate=True,
        ttl=HELD_FOR,
        on_store_failure="fail_closed",  # no response without a tenant that pays for it
    )
    @limit(Concurrency(own.streams, ttl=HELD_FOR), key=tenant, name="streams")
    async def chat(request: Request) -> Response:
        asked = await question(request)
        if asked.is_streamed:
            return StreamingResponse(events(request, asked), media_type="text/event-stream")
        words = [word async for word in model(asked)]
        usage: dict[str, Any] = used(request, asked, len(words))
        return JSONResponse({"answer": " ".join(words), "usage": usage})

    @app.get("/health")
    async def health() -> str:
        return "well"

    return app


def app() -> FastAPI:
    """The proxy with the budget that is in the environment."""
    named = {name: os.environ.get(f"BUDGET_{name.upper()}") for name in ("requests", "tokens")}
    said = {name: value for name, value in named.items() if value is not None}
    streams = int(os.environ.get("BUDGET_STREAMS", str(Budget.streams)))
    store = os.environ.get("HEADGATE_STORE", "memory://")
    return create_app(Budget(**said, streams=streams), store)


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(app(), port=int(os.environ.get("PORT", "8000")))
