"""`python -m benchmarks.service.bare_server PORT`: uvicorn with an app that only answers."""

from __future__ import annotations

import sys
from typing import Any

import uvicorn

_BODY = b'{"allowed": true}'
_HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"17")]


async def bare(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": _BODY})


if __name__ == "__main__":
    uvicorn.run(
        bare,
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
    )
