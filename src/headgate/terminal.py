"""Text for people: numbers, durations, names, tables and progress.

Names from outside may contain control characters: `printable` escapes them. Tables and progress
need rich (extra `cli`).
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager
from io import StringIO
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Final, TextIO

from headgate.errors import not_installed
from headgate.units import DAY, HOUR, MILLISECOND, MINUTE, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from rich.console import JustifyMethod, RenderableType

    Update = Callable[[float | None, str], None]
    """Show the share that is done, from 0 to 1 or None if unknown, and figures in words."""

_AFTER_SCHEME: Final = re.compile(r"(\w://)\S+")
_UNITS: Final = ((DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (SECOND, "s"))
_UNLIMITED: Final = 100_000
"""Columns of output that is never wrapped."""
_BAR_WIDTH: Final = 24


def without_secrets(text: str) -> str:
    """*text* without the part after the `://` of a URL, which may contain a password."""
    return _AFTER_SCHEME.sub(r"\1...", text)


def printable(text: str, *, keeps_backslashes: bool = False) -> str:
    """*text* with all characters escaped that are not visible, as in a Python string.

    *keeps_backslashes*: a backslash stays as it is, for text that is escaped already.
    """
    shown = text if keeps_backslashes else text.replace("\\", r"\\")
    if shown.isprintable():
        return shown
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in shown)


def clipped(text: str, longest: int = 60) -> str:
    """*text*, printable, cut to *longest* characters."""
    shown = printable(text[: longest + 1])
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}\N{HORIZONTAL ELLIPSIS}"


def counted(number: float, name: str) -> str:
    """A number of things: 1 caller, 1,400 callers."""
    return f"{number:,.0f} {name}{'' if round(number) == 1 else 's'}"


def duration(nanoseconds: int) -> str:
    """A short duration, rounded up: 250ms, 1.8s, 4m10s, 2h5m, 3d4h."""
    if nanoseconds <= 0:
        return "0s"
    if nanoseconds <= 999 * MILLISECOND:
        return f"{-(-nanoseconds // MILLISECOND)}ms"
    tenths = -(-nanoseconds * 10 // SECOND)
    if tenths < 600:
        return f"{tenths / 10:g}s"
    whole_ns = -(-nanoseconds // SECOND) * SECOND
    place = next(n for n, (size_ns, _) in enumerate(_UNITS) if whole_ns >= size_ns)
    (size_ns, name), (smaller_ns, smaller) = _UNITS[place : place + 2]
    count, rest_ns = divmod(whole_ns, size_ns)
    more = rest_ns // smaller_ns
    return f"{count}{name}{more}{smaller}" if more else f"{count}{name}"


def is_terminal(stream: TextIO | None) -> bool:
    """True if *stream* is a terminal; None is a closed one, as with `2>&-`."""
    return stream is not None and stream.isatty()


_STYLES: Final = {"bold": "1", "red": "1;31", "yellow": "1;33", "green": "32", "dim": "2"}


def styled(text: str, style: str) -> str:
    """*text* in a style such as `red` if stdout is a terminal with styles."""
    return f"\033[{_STYLES[style]}m{text}\033[0m" if _has_styles() else text


def bold(text: str) -> str:
    """*text* in bold if stdout is a terminal with styles."""
    return styled(text, "bold")


def _has_styles() -> bool:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return is_terminal(sys.stdout)


def require_rich() -> None:
    """Raise an error that names the extra if rich is not installed."""
    try:
        import rich  # noqa: F401
    except ModuleNotFoundError as error:
        raise not_installed("cli", error) from error


def rendered(renderable: RenderableType, width: int | None = None) -> str:
    """*renderable* as text for stdout, without blanks at the ends of lines.

    The default of *width* is that of the terminal, or unlimited if stdout is not one.
    """
    from rich.console import Console

    has_styles = _has_styles()
    if width is None:
        width = get_terminal_size().columns if is_terminal(sys.stdout) else _UNLIMITED
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


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Collection[int] = ()
) -> str:
    """*rows* in columns under *header*; the columns *numbers* are aligned right."""
    require_rich()
    from rich.table import Table
    from rich.text import Text

    found = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for place, title in enumerate(header):
        is_number = place in numbers
        justify: JustifyMethod = "right" if is_number else "left"
        found.add_column(title, no_wrap=is_number, overflow="fold", justify=justify)
    for row in rows:
        found.add_row(*map(Text, row))
    return rendered(found)


@contextmanager
def progress(task: str, *, is_shown: bool = True) -> Iterator[Update]:
    """Show the progress of *task* on stderr until the end, if that is a terminal and rich is there.

    Yields the function that updates it.
    """
    is_shown = is_shown and is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"
    try:
        from rich import progress as bars
        from rich.console import Console
    except ModuleNotFoundError:
        is_shown = False
    if not is_shown:
        yield lambda _share, _figures: None
        return
    columns = (
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(_BAR_WIDTH),
        bars.TaskProgressColumn(),
        bars.TextColumn("{task.fields[figures]}", markup=False),
        bars.TimeRemainingColumn(compact=True),
    )
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        row = shown.add_task(printable(task), total=None, figures="")

        def update(share: float | None, figures: str) -> None:
            total = None if share is None else 1.0
            shown.update(row, total=total, completed=share or 0.0, figures=figures)

        yield update
