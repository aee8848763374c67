"""The files of a policy, and its problems as lines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from headgate.control import PolicyFiles
from headgate.errors import OptionError
from headgate.policy.document import LARGEST_TEXT
from headgate.policy.problems import PolicyError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.policy.problems import Problem

STDIN: Final = "-"

Text = tuple[str, bytes]
"""The name of a text in messages, and its content."""


def texts_at(path: str) -> Sequence[Text]:
    """Read *path*: a file, the files of a directory, or stdin for `-`.

    Raises `OptionError` if it cannot be read.
    """
    if path == STDIN:
        return [("<stdin>", _piped())]
    try:
        return PolicyFiles(path).read().parts
    except PolicyError as error:
        raise OptionError("; ".join(lines(error.problems))) from error


def lines(problems: Iterable[Problem]) -> list[str]:
    """A line for each problem, with control characters escaped."""
    return [visible(str(problem)) for problem in problems]


def print_problems(problems: Iterable[Problem]) -> None:
    """Print *problems* on stderr."""
    for line in lines(problems):
        print(line, file=sys.stderr)


def _piped() -> bytes:
    if sys.stdin is None:  # closed by the caller, as with `<&-`
        raise OptionError("cannot read stdin: it is closed")
    try:
        return sys.stdin.buffer.read(LARGEST_TEXT + 1)
    except OSError as error:
        raise OptionError(f"cannot read stdin: {error.strerror or error}") from error


def visible(line: str) -> str:
    """*line* with invisible characters escaped; backslashes stay."""
    if line.isprintable():
        return line
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in line)
