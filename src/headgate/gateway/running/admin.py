"""Envoy's admin page, on a unix socket or a port of this machine."""

from __future__ import annotations

import asyncio
from typing import Final

from headgate.gateway.running.errors import GatewayError

_PATIENCE: Final = 5.0


class AdminError(GatewayError):
    """Envoy's admin page does not answer, or not with 200."""


class EnvoyAdmin:
    """Asks at *place*: the path of a socket, or host:port. Every call has a deadline."""

    def __init__(self, place: str, *, patience: float = _PATIENCE) -> None:
        self._place = place
        self._patience = patience

    async def get(self, path: str) -> str:
        """What the page at *path* says. Raises `AdminError`."""
        return await self._ask("GET", path)

    async def post(self, path: str) -> str:
        """Have something done. Raises `AdminError`."""
        return await self._ask("POST", path)

    async def is_live(self) -> bool:
        """Whether Envoy has started, and is not about to end."""
        try:
            return (await self.get("/ready")).strip() == "LIVE"
        except AdminError:
            return False

    async def answers(self) -> bool:
        """Whether Envoy says anything, if only that it is about to end."""
        try:
            await self._exchanged("GET", "/ready")
        except AdminError:
            return False
        return True

    async def stats(self, pattern: str) -> dict[str, int]:
        """The counters and gauges whose names match the regular expression *pattern*."""
        page = await self.get(f"/stats?filter={pattern}")
        pairs = (line.rpartition(": ") for line in page.splitlines())
        return {name: int(value) for name, _, value in pairs if value.isdigit()}

    async def _ask(self, method: str, path: str) -> str:
        head, body = await self._exchanged(method, path)
        status = head.split(b" ", 2)[1:2]
        if status != [b"200"]:
            said = (body.strip() or head.strip()).decode("utf-8", "replace")
            raise AdminError(f"Envoy's admin page {path}: {said}")
        return body.decode("utf-8", "replace")

    async def _exchanged(self, method: str, path: str) -> tuple[bytes, bytes]:
        try:
            async with asyncio.timeout(self._patience):
                return await self._talked(f"{method} {path}")
        except TimeoutError as error:
            raise AdminError(f"Envoy's admin page {path} does not answer") from error
        except (OSError, EOFError, ValueError) as error:
            raise AdminError(f"Envoy's admin page {path}: {error}") from error

    async def _talked(self, what: str) -> tuple[bytes, bytes]:
        """The head and the body of the response."""
        if self._place.startswith("/"):
            reader, writer = await asyncio.open_unix_connection(self._place)
        else:
            host, _, port = self._place.rpartition(":")
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        try:
            lines = f"{what} HTTP/1.1\r\nhost: envoy\r\nconnection: close\r\ncontent-length: 0\r\n"
            writer.write(f"{lines}\r\n".encode("latin-1"))
            head = await reader.readuntil(b"\r\n\r\n")
            rest = await reader.read()
        finally:
            writer.close()
        return head, _unchunked(rest) if b"transfer-encoding: chunked" in head.lower() else rest


def _unchunked(data: bytes) -> bytes:
    """The body in *data*, which is in chunks. Raises `ValueError` if it is not whole."""
    pieces: list[bytes] = []
    while True:
        size, _, data = data.partition(b"\r\n")
        length = int(size.partition(b";")[0], 16)
        if length == 0:
            return b"".join(pieces)
        if len(data) < length:
            raise ValueError("cut off")
        pieces.append(data[:length])
        data = data[length:].removeprefix(b"\r\n")
