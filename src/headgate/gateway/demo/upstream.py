"""The upstream of the demo: a small HTTP server with a page for each kind of rule."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_HEAD_BYTES: Final = 64 * 1024
_CHAT: Final = (
    "A headgate controls how much water enters a canal: each farm along it gets its fair share."
)
_TOKENS_PER_WORD: Final = 25
_SLOW_STEPS: Final = 5
_SLOW_PAUSE_S: Final = 0.4


class DemoUpstream:
    """An HTTP/1.1 server on the unix socket *path*, in the event loop that starts it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start listening."""
        self._server = await asyncio.start_unix_server(
            self._accept, self._path, limit=_MAX_HEAD_BYTES
        )

    async def aclose(self) -> None:
        """Stop listening, and cancel the requests in flight."""
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, EOFError, asyncio.LimitOverrunError, ValueError):
                while True:
                    head = await reader.readuntil(b"\r\n\r\n")
                    await _skip_body(head, reader)
                    await _answer(head, writer)
        finally:
            writer.close()


async def _skip_body(head: bytes, reader: asyncio.StreamReader) -> None:
    """Read the body of a request and drop it."""
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
    }
    if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        while size := int((await reader.readline()).partition(b";")[0], 16):
            await reader.readexactly(size + 2)
        await reader.readline()
        return
    left = int(headers.get(b"content-length", b"0"))
    while left:
        left -= len(await reader.readexactly(min(left, _MAX_HEAD_BYTES)))


async def _answer(head: bytes, writer: asyncio.StreamWriter) -> None:
    method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
    path = target.partition("?")[0]
    if path == "/slow":
        await _send_slowly(writer)
        return
    page = _PAGES.get(path) or (_api if path.startswith("/api/") else None)
    status, content, headers = page(method, path) if page else _not_found(path)
    body = (json.dumps(content) + "\n").encode()
    lines = [
        f"HTTP/1.1 {status}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode() + (b"" if method == "HEAD" else body))
    await writer.drain()


async def _send_slowly(writer: asyncio.StreamWriter) -> None:
    """Send a slow response line by line."""
    lines = ("HTTP/1.1 200 OK", "content-type: text/plain", "transfer-encoding: chunked", "", "")
    writer.write("\r\n".join(lines).encode())
    for step in range(1, _SLOW_STEPS + 1):
        line = f"{step} of {_SLOW_STEPS}\n".encode()
        writer.write(b"%x\r\n%b\r\n" % (len(line), line))
        await writer.drain()
        await asyncio.sleep(_SLOW_PAUSE_S)
    writer.write(b"0\r\n\r\n")
    await writer.drain()


_Page = tuple[str, dict[str, Any], dict[str, object]]


def _index(_method: str, _path: str) -> _Page:
    pages = {
        "/api/hello": "limited by API key (x-api-key)",
        "POST /login": "limited by client IP",
        "/report": "limited for all clients together",
        "/chat": "limited by tokens, counted after the response",
        "/slow": "a stream that takes two seconds",
    }
    return "200 OK", {"service": "demo upstream", "pages": pages}, {}


def _api(method: str, path: str) -> _Page:
    return "200 OK", {"hello": "world", "request": f"{method} {path}"}, {}


def _login(method: str, _path: str) -> _Page:
    if method != "POST":
        return "405 Method Not Allowed", {"error": "POST only"}, {"allow": "POST"}
    return "401 Unauthorized", {"error": "wrong password"}, {}


def _report(_method: str, _path: str) -> _Page:
    return "200 OK", {"report": "no incidents"}, {}


def _chat(_method: str, _path: str) -> _Page:
    tokens = _TOKENS_PER_WORD * len(_CHAT.split())
    return "200 OK", {"answer": _CHAT, "tokens": tokens}, {"x-tokens": tokens}


def _not_found(path: str) -> _Page:
    return "404 Not Found", {"error": f"{path} does not exist; see /"}, {}


_PAGES: Final[dict[str, Callable[[str, str], _Page]]] = {
    "/": _index,
    "/login": _login,
    "/report": _report,
    "/chat": _chat,
}
