"""Text for a terminal: tables, durations, and nothing in it that the terminal would obey."""

from __future__ import annotations

import os
import re
import sys
from time import monotonic
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_AFTER_SCHEME: Final = re.compile(r"(\w://)\S+")
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"))
_SECOND: Final = 1_000_000_000
_MILLISECOND: Final = 1_000_000
_GAP: Final = "  "


def without_secrets(text: str) -> str:
    """*text* without what follows the `://` of a URL, where a password may be."""
    return _AFTER_SCHEME.sub(r"\1...", text)


def printable(text: str) -> str:
    """*text* with all that is no visible character escaped, as in a Python string."""
    shown = text.replace("\\", r"\\")
    if shown.isprintable():
        return shown
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in shown)


def bold(text: str) -> str:
    """*text* in bold if stdout is a terminal that likes that."""
    return f"\033[1m{text}\033[0m" if _has_colour() else text


def _has_colour() -> bool:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return sys.stdout.isatty()


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """*rows* in columns under *header*."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        pairs = zip(cells, widths, strict=True)
        return _GAP.join(cell.ljust(width) for cell, width in pairs).rstrip()

    return "\n".join([bold(line(header)), *map(line, rows)])


def duration(nanoseconds: int) -> str:
    """A time as a person says it, rounded up: 250ms, 1.8s, 4m10s, 2h5m, 3d4h."""
    if nanoseconds <= 0:
        return "0s"
    if nanoseconds <= 999 * _MILLISECOND:
        return f"{-(-nanoseconds // _MILLISECOND)}ms"
    tenths = -(-nanoseconds * 10 // _SECOND)
    if tenths < 600:
        return f"{tenths / 10:g}s"
    seconds = -(-nanoseconds // _SECOND)
    size, name = next((size, name) for size, name in _UNITS if seconds >= size)
    whole, rest = divmod(seconds, size)
    smaller, its_name = {"d": (3_600, "h"), "h": (60, "m"), "m": (1, "s")}[name]
    return f"{whole}{name}{rest // smaller}{its_name}" if rest >= smaller else f"{whole}{name}"


# A line on stderr that says how far something is; nothing where stderr is no terminal.


_EVERY_S: Final = 0.1
_WIDTH: Final = 24
_ALONE: Final = 80
_BACK_AND_CLEAR: Final = "\r\033[K"


def is_terminal(stream: TextIO | None) -> bool:
    """Whether somebody sits at *stream*; None is one that was closed, as with `2>&-`."""
    return stream is not None and stream.isatty()


class StatusLine:
    """One line on *stream*, stderr if none is given, that is written over again and again.

    Only where that is a terminal that can do it: `is_of_use`. A terminal that goes away meanwhile
    is no reason to fail.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_shown = False
        self.is_of_use = is_terminal(self._stream) and os.environ.get("TERM") != "dumb"

    def show(self, text: str) -> None:
        """Have the line say *text*, or as much of it as there is room for."""
        if self.is_of_use:
            self._is_shown = True
            self._write(text[: _columns(self._stream) - 1])

    def clear(self) -> None:
        """Leave the line as it was before."""
        if self._is_shown:
            self._is_shown = False
            self._write("")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(f"{_BACK_AND_CLEAR}{text}")
            self._stream.flush()
        except OSError:
            self.is_of_use = False


class ProgressBar:
    """How far *what* is: a share, how many a second, and how long it will take.

    Shown at most ten times a second on *stream*, as a `StatusLine` is. *clock* is in seconds.
    """

    def __init__(
        self,
        what: str,
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._what = what
        self._line = StatusLine(stream)
        self._clock = clock
        self._began_s = clock()
        self._shown_s = self._began_s

    @property
    def is_of_use(self) -> bool:
        """Whether anybody sees it."""
        return self._line.is_of_use

    def __call__(self, count: int, share: float | None) -> None:
        """Show that *count* are done, which is *share* of all, from 0 to 1, if that is known."""
        now_s = self._clock()
        if not self.is_of_use or now_s - self._shown_s < _EVERY_S:
            return
        self._shown_s = now_s
        self._line.show(progress_line(self._what, count, share, now_s - self._began_s))

    def clear(self) -> None:
        """Leave the line as it was before."""
        self._line.clear()


def progress_line(what: str, count: int, share: float | None, took_s: float) -> str:
    """The bar as text."""
    rate = count / took_s if took_s > 0 else 0.0
    told = f"{count:,} requests, {rate:,.0f}/s"
    if share is None:
        return f"{what}  {told}"
    full = round(share * _WIDTH)
    bar = "#" * full + "." * (_WIDTH - full)
    left = f", {_time(took_s / share - took_s)} left" if share > 0 else ""
    return f"{what}  [{bar}] {share:4.0%}  {told}{left}"


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or _ALONE
    except OSError:
        return _ALONE
