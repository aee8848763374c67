"""What limits of tokens and dollars add to an app: `python -m benchmarks.llm_app`.

A FastAPI app answers a chat of 2 KB, plainly or as a stream of 200 chunks, with and without
`RateLimitMiddleware` and a policy of requests, tokens, dollars and concurrent streams in memory.
Without a server: processor time of one thread, the best of several rounds of each in turn.
"""

from __future__ import annotations

import asyncio
import json
from time import thread_time_ns
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from headgate.integrations.fastapi import RateLimitMiddleware
from headgate.policy.loader import read_policy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

POLICY: Final = """
version: 1
prices: {"*": {input: 2.50, cached: 1.25, output: 10}}
rules:
  - {id: requests, match: {endpoint: /v1/**}, key_by: tenant, limit: 1000000000/minute}
  - {id: tokens, match: {endpoint: /v1/**}, key_by: tenant, limit: 100000000/s, cost: {llm: tokens}}
  - {id: spend, match: {endpoint: /v1/**}, key_by: tenant, limit: 100000 usd/s, cost: {llm: spend}}
  - {id: streams, match: {endpoint: /v1/**}, key_by: tenant, concurrency: {limit: 8, ttl: 10m}}
"""
CHUNKS: Final = 200
ROUNDS: Final = 7
CALLS: Final = 200

_USAGE: Final = {"prompt_tokens": 500, "completion_tokens": 200, "total_tokens": 700}
_ASKED: Final[dict[str, Any]] = {
    "model": "gpt-4o",
    "messages": [{"role": "user", "content": "hello " * 340}],
    "max_tokens": 500,
}
_CHUNK: Final = b'data: {"id": "1", "choices": [{"index": 0, "delta": {"content": "word"}}]}\n\n'
_LAST: Final = b'data: {"choices": [], "usage": ' + json.dumps(_USAGE).encode() + b"}\n\n"


def app_of(*, is_limited: bool) -> FastAPI:
    """An app that answers as a model does."""
    app = FastAPI()

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(CHUNKS):
            yield _CHUNK
        yield _LAST
        yield b"data: [DONE]\n\n"

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        if (await request.json()).get("stream"):
            return StreamingResponse(parts(), media_type="text/event-stream")
        return JSONResponse({"choices": [{"message": {"content": "word " * 200}}], "usage": _USAGE})

    if is_limited:
        app.add_middleware(RateLimitMiddleware, policy=read_policy(POLICY))
    return app


async def call(app: FastAPI, body: bytes) -> None:
    """Make one call, as a server does."""
    messages = [{"type": "http.request", "body": body}]
    statuses = []

    async def receive() -> Any:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()
        return None

    async def send(message: Any) -> None:
        if "status" in message:
            statuses.append(message["status"])

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/v1/chat/completions",
        "raw_path": b"/v1/chat/completions",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"x-tenant-id", b"a")],
        "client": ("192.0.2.1", 1),
        "server": ("127.0.0.1", 80),
    }
    await app(scope, receive, send)
    if statuses != [200]:
        raise RuntimeError(f"the app answered {statuses}")


def measure(app: FastAPI, body: bytes) -> float:
    """The microseconds of a call."""

    async def calls() -> int:
        await call(app, body)
        began = thread_time_ns()
        for _ in range(CALLS):
            await call(app, body)
        return thread_time_ns() - began

    return asyncio.run(calls()) / CALLS / 1_000


def main() -> None:
    print(f"{'':10}{'without':>12}{'with':>12}{'added':>12}{'ratio':>8}")
    for name, asked in (("plain", _ASKED), ("stream", {**_ASKED, "stream": True})):
        body = json.dumps(asked).encode()
        bare, limited = app_of(is_limited=False), app_of(is_limited=True)
        pairs = [(measure(bare, body), measure(limited, body)) for _ in range(ROUNDS)]
        without, with_ = (min(times) for times in zip(*pairs, strict=True))
        added, ratio = with_ - without, without / with_
        print(f"{name:10}{without:>9.0f} us{with_:>9.0f} us{added:>9.0f} us{ratio:>8.2f}")


if __name__ == "__main__":
    main()
