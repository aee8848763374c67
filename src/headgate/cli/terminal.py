"""Text for a terminal: tables, durations, progress. Control characters are escaped."""

from __future__ import annotations

import os
import re
import sys
from io import StringIO
from time import monotonic
from typing import TYPE_CHECKING, Final, TextIO

from headgate.errors import not_installed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import RenderableType
    from rich.live import Live


_AFTER_SCHEME: Final = re.compile(r"(\w://)\S+")
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"))
_SECOND: Final = 1_000_000_000
_MILLISECOND: Final = 1_000_000
_UNLIMITED: Final = 100_000
"""Columns of a table that is never wrapped."""
_PROGRESS_INTERVAL_S: Final = 0.1


def without_secrets(text: str) -> str:
    """*text* without the part after the `://` of a URL, which may contain a password."""
    return _AFTER_SCHEME.sub(r"\1...", text)


def printable(text: str) -> str:
    """*text* with all characters escaped that are not visible, as in a Python string."""
    shown = text.replace("\\", r"\\")
    if shown.isprintable():
        return shown
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in shown)


def bold(text: str) -> str:
    """*text* in bold if stdout is a terminal with styles."""
    return f"\033[1m{text}\033[0m" if _has_styles() else text


def _has_styles() -> bool:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return sys.stdout.isatty()


def require_rich() -> None:
    """Raise an error that names the extra if rich is not installed."""
    try:
        import rich  # noqa: F401
    except ModuleNotFoundError as error:
        raise not_installed("cli", error) from error


def rendered(renderable: RenderableType, width: int = _UNLIMITED) -> str:
    """*renderable* as text for stdout, without blanks at the ends of lines."""
    from rich.console import Console

    has_styles = _has_styles() and width == _UNLIMITED
    console = Console(
        file=StringIO(),
        width=width,
        force_terminal=has_styles,
        color_system="standard" if has_styles else None,
        highlight=False,
        legacy_windows=False,
    )
    with console.capture() as capture:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in capture.get().rstrip("\n").split("\n"))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """*rows* in columns under *header*."""
    require_rich()
    from rich.table import Table
    from rich.text import Text

    found = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for title in header:
        found.add_column(title, no_wrap=True)
    for row in rows:
        found.add_row(*map(Text, row))
    return rendered(found)


def duration(nanoseconds: int) -> str:
    """A short duration, rounded up: 250ms, 1.8s, 4m10s, 2h5m, 3d4h."""
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


def is_terminal(stream: TextIO | None) -> bool:
    """True if *stream* is a terminal; None is a closed one, as with `2>&-`."""
    return stream is not None and stream.isatty()


class StatusLine:
    """A line on stderr that is overwritten again and again, and removed at the end.

    Shows nothing if stderr is not a terminal, or if rich is not installed.
    """

    def __init__(self) -> None:
        self._live = _live_line()

    @property
    def is_visible(self) -> bool:
        """True if the line is shown."""
        return self._live is not None

    def show(self, content: RenderableType) -> None:
        """Replace the line."""
        if self._live is None:
            return
        try:
            self._live.start()
            self._live.update(content, refresh=True)
        except OSError:  # the terminal was closed
            self._live = None

    def clear(self) -> None:
        """Remove the line."""
        if self._live is not None:
            self._live.stop()


def _live_line() -> Live | None:
    if not is_terminal(sys.stderr) or os.environ.get("TERM") == "dumb":
        return None
    try:
        from rich.console import Console
        from rich.live import Live
    except ModuleNotFoundError:
        return None
    return Live(console=Console(stderr=True), transient=True, auto_refresh=False)


class ProgressBar:
    """The progress of *task* as a `StatusLine`, redrawn at most ten times a second."""

    def __init__(self, task: str, *, clock: Callable[[], float] = monotonic) -> None:
        self._task = task
        self._line = StatusLine()
        self._clock = clock
        self._began_s = clock()
        self._shown_s = self._began_s

    @property
    def is_visible(self) -> bool:
        """True if the bar is shown."""
        return self._line.is_visible

    def __call__(self, count: int, share: float | None) -> None:
        """Show that *count* requests, a *share* of all from 0 to 1 if it is known, are done."""
        now_s = self._clock()
        if not self.is_visible or now_s - self._shown_s < _PROGRESS_INTERVAL_S:
            return
        self._shown_s = now_s
        self._line.show(_progress(self._task, count, share, now_s - self._began_s))

    def clear(self) -> None:
        """Remove the bar."""
        self._line.clear()


def _progress(task: str, count: int, share: float | None, took_s: float) -> RenderableType:
    from rich.progress_bar import ProgressBar as Bar
    from rich.table import Table
    from rich.text import Text

    rate = count / took_s if took_s > 0 else 0.0
    row: list[RenderableType] = [Text(printable(task))]
    figures = f"{count:,} requests, {rate:,.0f}/s"
    if share is not None:
        left_s = took_s / share - took_s if share > 0 else None
        left = "" if left_s is None else f", {duration(round(left_s * _SECOND))} left"
        row += [Bar(total=1.0, completed=share, width=24), Text(f"{share:4.0%}")]
        figures += left
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_row(*row, Text(figures, no_wrap=True))
    return line
