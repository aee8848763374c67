"""Envoy's admin page, spoken to over a socket."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from headgate.gateway.processes.envoy import AdminError, EnvoyAdmin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    Asked = Callable[[EnvoyAdmin], Awaitable[object]]


@asynccontextmanager
async def _page(path: Path, answer: bytes, asked: list[bytes]) -> AsyncIterator[EnvoyAdmin]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        writer.close()

    server = await asyncio.start_unix_server(serve, str(path))
    async with server:
        yield EnvoyAdmin(str(path))


def _ask(tmp_path: Path, answer: bytes, what: Asked) -> tuple[object, bytes]:
    asked: list[bytes] = []

    async def main() -> object:
        async with _page(tmp_path / "admin.sock", answer, asked) as admin:
            return await what(admin)

    return asyncio.run(main()), asked[0]


def test_a_body_in_chunks_is_put_together(tmp_path: Path) -> None:
    answer = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nLI\r\n3\r\nVE\n\r\n0\r\n\r\n"
    )
    answer = answer.replace(b"3\r\nLI\r\n", b"2\r\nLI\r\n")
    said, asked = _ask(tmp_path, answer, lambda admin: admin.is_live())
    assert said is True
    assert asked.startswith(b"GET /ready HTTP/1.1\r\n")
    assert b"\r\nhost: envoy\r\n" in asked.lower()  # Envoy rejects the path of a socket


def test_figures_are_read_and_other_lines_left_out(tmp_path: Path) -> None:
    body = b"a.b: 3\nupstream http_//x:1.rq: 4\nhistogram: P0(1,2)\n"
    answer = b"HTTP/1.1 200 OK\r\n\r\n" + body
    said, _ = _ask(tmp_path, answer, lambda admin: admin.stats("rq"))
    assert said == {"a.b": 3, "upstream http_//x:1.rq": 4}


def test_one_that_is_about_to_end_answers_but_is_not_live(tmp_path: Path) -> None:
    answer = b"HTTP/1.1 503 Service Unavailable\r\n\r\nDRAINING\n"
    assert _ask(tmp_path, answer, lambda admin: admin.is_live())[0] is False
    assert _ask(tmp_path, answer, lambda admin: admin.is_healthy())[0] is True


def test_an_error_says_what_the_page_said(tmp_path: Path) -> None:
    answer = b"HTTP/1.1 400 Bad Request\r\n\r\nno such thing"
    with pytest.raises(AdminError, match="/quit: no such thing"):
        _ask(tmp_path, answer, lambda admin: admin.post("/quit"))


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nx"]
)
def test_what_breaks_off_is_no_answer(tmp_path: Path, answer: bytes) -> None:
    assert _ask(tmp_path, answer, lambda admin: admin.is_healthy())[0] is False


def test_nobody_there_is_no_answer(tmp_path: Path) -> None:
    assert not asyncio.run(EnvoyAdmin(str(tmp_path / "none")).is_live())
    assert not asyncio.run(EnvoyAdmin("127.0.0.1:1").is_healthy())


def test_one_that_is_silent_is_given_up(tmp_path: Path) -> None:
    path = str(tmp_path / "silent.sock")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(path)
        silent.listen()
        with pytest.raises(AdminError, match="/ready timed out"):
            asyncio.run(EnvoyAdmin(path, timeout=0.01).get("/ready"))
