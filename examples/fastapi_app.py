"""A FastAPI app with limits: for all of it, for a route, for failed logins, for tokens.

    pip install uvicorn
    python examples/fastapi_app.py
    curl -i http://127.0.0.1:8000/search?q=water

With HEADGATE_STORE=redis://localhost several processes share their counters.
"""

import os
from collections.abc import AsyncIterator
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from headgate.integrations.fastapi import (
    RateLimit,
    RateLimitMiddleware,
    RequestContext,
    exempt,
    limit,
)

app = FastAPI(title="Limits")
app.add_middleware(
    RateLimitMiddleware,
    limits="100/minute",
    store=os.environ.get("HEADGATE_STORE", "memory://"),
)


class Credentials(BaseModel):
    user: str
    password: str


def tier(request: Request) -> str:
    """More for those who pay."""
    return "20/minute" if request.headers.get("x-tier") == "paid" else "5/minute"


@app.get("/health")
@exempt
def health() -> str:
    return "well"


@app.get("/search", dependencies=[Depends(RateLimit(tier))])
async def search(q: str) -> dict[str, str]:
    return {"found": f"nothing about {q}"}


@app.post("/login")
@limit(
    "5/minute strict",
    name="failed-logins",
    charge_when=lambda response: response.status_code == 401,
)
def login(given: Credentials) -> str:
    if given.password != "open sesame":  # noqa: S105 (everybody knows it)
        raise HTTPException(401, "wrong password")
    return f"welcome, {given.user}"


# 500 tokens are set aside when a chat begins; what it did not use comes back when it ends.
tokens = RateLimit("1000/hour", name="tokens", cost=500, is_estimate=True)


@app.get("/chat")
async def chat(usage: Annotated[RequestContext, Depends(tokens)]) -> StreamingResponse:
    async def words() -> AsyncIterator[str]:
        for used, word in enumerate(("to ", "whom ", "it ", "concerns"), 1):
            usage.report({"tokens": used})
            yield word

    return StreamingResponse(words(), media_type="text/plain")


if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
