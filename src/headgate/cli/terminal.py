"""Text for a terminal: tables, durations, and nothing in it that the terminal would obey."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

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
