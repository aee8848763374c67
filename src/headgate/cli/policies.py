"""Policies that the user names: their files, and their problems in words."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from headgate.control import PolicyFiles
from headgate.errors import OptionError
from headgate.policy.document import MAX_BYTES
from headgate.policy.loader import examine_policies
from headgate.policy.problems import PolicyError
from headgate.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.policy.model import Policy
    from headgate.policy.problems import Problem

    Text = tuple[str, bytes]
    """The name of a text in messages, and its content."""


def texts_at(path: str) -> Sequence[Text]:
    """Read *path*: a file, the files of a directory, or stdin for `-`.

    Raises `OptionError` if it cannot be read.
    """
    if path == "-":
        return [("<stdin>", _piped())]
    try:
        return PolicyFiles(path).read().parts
    except PolicyError as error:
        raise OptionError("; ".join(lines(error.problems))) from error


def policy_at(path: str) -> Policy:
    """The policy at *path*, as in `texts_at`. Prints its problems and raises `OptionError` if it
    is invalid."""
    examined = examine_policies(texts_at(path))
    if examined.policy is None:
        print_problems(examined.problems)
        raise OptionError(f"the policy {path!r} is invalid")
    return examined.policy


def lines(problems: Iterable[Problem]) -> list[str]:
    """A line for each problem, with control characters escaped."""
    return [printable(str(problem), keeps_backslashes=True) for problem in problems]


def print_problems(problems: Iterable[Problem], *, prefix: str = "") -> None:
    """Print *problems* on stderr."""
    for line in lines(problems):
        print(f"{prefix}{line}", file=sys.stderr)


def _piped() -> bytes:
    if sys.stdin is None:  # closed by the caller, as with `<&-`
        raise OptionError("cannot read stdin: it is closed")
    try:
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    except OSError as error:
        raise OptionError(f"cannot read stdin: {error.strerror or error}") from error
