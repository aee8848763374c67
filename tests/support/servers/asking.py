"""Commands for a Redis server without a process: `redis-cli` takes ten times as long to start."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import TYPE_CHECKING

from tests.support.servers.process import ServerError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from io import BufferedReader


def ask(address: tuple[str, int], commands: Sequence[Sequence[str]], *, within: float) -> str:
    """The answers to *commands* as `redis-cli` prints them: a list has one line per item.

    `ServerError` if one of them is an error, and if there is none *within* so many seconds.
    """
    try:
        with (
            socket.create_connection(address, timeout=within) as connection,
            closing(connection.makefile("rb")) as answers,
        ):
            connection.sendall(b"".join(map(_encoded, commands)))
            said = "\n".join([_decoded(answers) for _ in commands])
    except OSError as error:
        raise ServerError(f"{address} {commands}: {error}") from error
    return said.replace("\r\n", "\n").rstrip("\n")


def _encoded(command: Sequence[str]) -> bytes:
    parts = [word.encode() for word in command]
    lines = [b"*%d\r\n" % len(parts), *(b"$%d\r\n%s\r\n" % (len(one), one) for one in parts)]
    return b"".join(lines)


def _decoded(answers: BufferedReader) -> str:
    line = answers.readline().decode()
    if not line.endswith("\r\n"):
        raise ConnectionError("the connection was closed")
    kind, rest = line[0], line[1:-2]
    if kind in "+:":
        return rest
    if kind == "$":
        return "" if rest == "-1" else answers.read(int(rest) + 2)[:-2].decode()
    if kind == "*":
        return "\n".join([_decoded(answers) for _ in range(int(rest))])
    raise ServerError(rest)
