"""What limits of tokens and dollars add to an app: `python -m benchmarks.llm_app`.

A FastAPI app answers a chat of 2 KB, plainly or as a stream of 200 chunks, with and without
`RateLimitMiddleware` and a policy of requests, tokens, dollars and concurrent streams in memory.
uvicorn serves it to wrk: its processor time for a call, the best of several rounds of each in turn.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from benchmarks.budgets.service import Load, cpu_us
from benchmarks.servers import Server
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
  - {id: streams, match: {endpoint: /v1/**}, key_by: tenant, concurrency: {limit: 1000, ttl: 10m}}
"""
CHUNKS: Final = 200
ROUNDS: Final = 3
SECONDS: Final = 4

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


class ChatApp(Server):
    """uvicorn with the app."""

    def __init__(self, directory: Path, *, is_limited: bool) -> None:
        super().__init__(directory)
        which = "limited" if is_limited else "bare"
        call = (sys.executable, "-m", "benchmarks.llm_app", which, str(self.port))
        self.run(*call, ready="/openapi.json")


def serve(which: str, port: int) -> None:
    """Serve the app until it is stopped."""
    app = app_of(is_limited=which == "limited")
    uvicorn.run(app, port=port, log_level="error", access_log=False)


def main() -> None:
    print(f"{'':10}{'without':>12}{'with':>12}{'added':>12}{'ratio':>8}")
    headers = {"Content-Type": "application/json", "X-Tenant-Id": "a"}
    with (
        tempfile.TemporaryDirectory() as directory,
        ChatApp(Path(directory, "bare"), is_limited=False) as bare,
        ChatApp(Path(directory, "limited"), is_limited=True) as limited,
    ):
        for name, asked in (("plain", _ASKED), ("stream", {**_ASKED, "stream": True})):
            load = Load("POST", "/v1/chat/completions", headers, json.dumps(asked))
            rounds = [
                [cpu_us(one, load, SECONDS) for one in (bare, limited)] for _ in range(ROUNDS)
            ]
            without, with_ = (min(times) for times in zip(*rounds, strict=True))
            added, ratio = with_ - without, without / with_
            print(f"{name:10}{without:>9.0f} us{with_:>9.0f} us{added:>9.0f} us{ratio:>8.2f}")


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2])) if sys.argv[1:] else main()
