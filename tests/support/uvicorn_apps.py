"""Apps on a real uvicorn: in a thread of this process, or in processes of their own."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import uvicorn

from tests.support.servers import free_port, release_port, wait_until
from tests.support.servers.process import Process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

EXAMPLES = Path(__file__).parents[2] / "examples"


@contextmanager
def serving(app: Any, **options: Any) -> Iterator[str]:
    """The URL of *app*, which a thread serves. *options* are those of uvicorn."""
    port = free_port()
    # A server that is to stop does not wait for clients that stay.
    config = uvicorn.Config(
        app, port=port, log_level="critical", timeout_graceful_shutdown=1, **options
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="uvicorn")
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive(), "uvicorn serves")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
        release_port(port)


@contextmanager
def script(path: Path, log: Path, **variables: str) -> Iterator[str]:
    """The URL of the app that the script at *path* serves, in a process of its own.

    It is told the PORT, like the *variables*, by its environment, and has to answer at /health.
    """
    port = free_port()
    given = [f"{key}={value}" for key, value in {**variables, "PORT": str(port)}.items()]
    process = Process(["env", *given, sys.executable, str(path)], log)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: is_well(url) or not process.is_running, f"{path.name} serves")
        yield url
    finally:
        process.terminate()
        release_port(port)


def is_well(url: str) -> bool:
    """Whether somebody at *url* says that he is well."""
    try:
        return httpx.get(f"{url}/health").status_code == 200
    except httpx.TransportError:
        return False


class Wire:
    """A connection that is written to and read from as the test likes, and dropped at will."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def say(self, text: str) -> None:
        self._writer.write(text.encode())
        await self._writer.drain()

    async def say_chunk(self, text: str) -> None:
        await self.say(f"{len(text):x}\r\n{text}\r\n")

    async def hear(self, text: str) -> str:
        """All that is heard up to *text*."""
        return (await self._reader.readuntil(text.encode())).decode()


@asynccontextmanager
async def wire(url: str) -> AsyncIterator[Wire]:
    """A connection to the server at *url*."""
    parsed = httpx.URL(url)
    reader, writer = await asyncio.open_connection(parsed.host, parsed.port)
    try:
        yield Wire(reader, writer)
    finally:
        writer.transport.abort()
