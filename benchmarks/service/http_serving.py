"""`python -m benchmarks.service.http_serving SERVER APP PORT`: one app on one server."""

from __future__ import annotations

import asyncio
import sys

from benchmarks.service.http_apps import app_named


def on_uvicorn(name: str, port: int) -> None:
    import uvicorn

    uvicorn.run(
        app_named(name),
        port=port,
        loop="uvloop",
        http="httptools",
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
    )


def on_granian(name: str, port: int) -> None:
    import uvloop
    from granian.constants import Interfaces
    from granian.server.embed import Server

    server = Server(app_named(name), port=port, interface=Interfaces.ASGI, log_enabled=False)
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(server.serve())


SERVERS = {"uvicorn": on_uvicorn, "granian": on_granian}

if __name__ == "__main__":
    SERVERS[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
