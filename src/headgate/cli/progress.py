"""A bar on stderr that says how far something is; nothing where stderr is no terminal."""

from __future__ import annotations

import os
import sys
from time import monotonic
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

_EVERY_S: Final = 0.1
_WIDTH: Final = 24
_ALONE: Final = 80
_BACK_AND_CLEAR: Final = "\r\033[K"


class ProgressBar:
    """How far *what* is: a share, how many a second, and how long it will take.

    Shown at most ten times a second on *stream*, stderr if none is given; only if that is a
    terminal. *clock* is in seconds.
    """

    def __init__(
        self,
        what: str,
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._what = what
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._began_s = clock()
        self._shown_s = self._began_s
        self._is_shown = False
        self.is_of_use = self._stream.isatty() and os.environ.get("TERM") != "dumb"

    def __call__(self, count: int, share: float | None) -> None:
        """Show that *count* are done, which is *share* of all, from 0 to 1, if that is known."""
        now_s = self._clock()
        if not self.is_of_use or now_s - self._shown_s < _EVERY_S:
            return
        self._shown_s = now_s
        self._is_shown = True
        line = progress_line(self._what, count, share, now_s - self._began_s)
        self._stream.write(f"{_BACK_AND_CLEAR}{line[: _columns(self._stream) - 1]}")
        self._stream.flush()

    def clear(self) -> None:
        """Leave the line as it was before."""
        if self._is_shown:
            self._is_shown = False
            self._stream.write(_BACK_AND_CLEAR)
            self._stream.flush()


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
