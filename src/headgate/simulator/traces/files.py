"""The lines of a file, plain or compressed, some at a time; and how much of it was read."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
import sys
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast

from headgate.simulator.traces.problems import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import BufferedReader

    Opener = Callable[[IO[bytes]], IO[bytes]]

STDIN: Final = "-"
LONGEST_LINE: Final = 1 << 20
"""Bytes above which a line is none."""

_CHUNK: Final = 1 << 18
_MAGIC: Final[tuple[tuple[bytes, Opener], ...]] = (
    (b"\x1f\x8b", lambda file: cast("IO[bytes]", gzip.GzipFile(fileobj=file))),
    (b"\xfd7zXZ\x00", lambda file: cast("IO[bytes]", lzma.LZMAFile(file))),  # noqa: SIM115
    (b"BZh", lambda file: cast("IO[bytes]", bz2.BZ2File(file))),
)
_UNREADABLE: Final = (OSError, EOFError, lzma.LZMAError, zlib.error)
_MARK: Final = b"\xef\xbb\xbf"  # that a text is UTF-8, as some programs say


class Lines:
    """The lines at *path*, `-` for stdin, without their ends. Compression is found out by itself.

    Raises `TraceError` for what cannot be read.
    """

    def __init__(self, path: str) -> None:
        self.name = "<stdin>" if path == STDIN else path
        try:
            raw = sys.stdin.buffer if path == STDIN else Path(path).open("rb")  # noqa: SIM115
            self._raw = cast("BufferedReader", raw)
            self._size = _size(self._raw)
            start = self._raw.peek(8)
        except (OSError, AttributeError) as error:  # there may be no stdin at all
            why = getattr(error, "strerror", None) or "it is closed"
            raise TraceError(f"cannot read {self.name}: {why}") from error
        opener = next((one for magic, one in _MAGIC if start.startswith(magic)), None)
        self._file: IO[bytes] = self._raw if opener is None else opener(self._raw)

    @property
    def share(self) -> float | None:
        """How much was read, from 0 to 1; None if nobody knows, as of a pipe."""
        if self._size is None:
            return None
        return 1.0 if self._raw.closed else min(1.0, self._raw.tell() / self._size)

    def chunks(self) -> Iterator[list[bytes]]:
        """All lines, some at a time. One that is too long is cut into several."""
        rest, is_first = b"", True
        try:
            while data := self._file.read(_CHUNK):
                if is_first:
                    data, is_first = data.removeprefix(_MARK), False
                data = rest + data
                if b"\r" in data:
                    data = data.replace(b"\r\n", b"\n")
                lines = data.split(b"\n")
                rest = lines.pop()
                if len(rest) > LONGEST_LINE:
                    lines.append(rest)
                    rest = b""
                if lines:
                    yield lines
        except _UNREADABLE as error:
            why = getattr(error, "strerror", None) or error
            raise TraceError(f"cannot read {self.name}: {why}") from error
        finally:
            if self._raw is not sys.stdin.buffer:
                self._raw.close()
        if rest:
            yield [rest]


def _size(file: BufferedReader) -> int | None:
    """How many bytes are in *file*, if it has an end that is known."""
    try:
        status = os.fstat(file.fileno())
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) and status.st_size else None
