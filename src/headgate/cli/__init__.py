"""The `headgate` command.

Each subcommand is a module with a `COMMAND`, listed in `_COMMANDS`; read `command` first. All of
them are imported at start, so a module imports slow packages and extras when it runs.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Final

from headgate import __version__
from headgate.cli import completion, gateway, keys, loadtest, rules, serve, simulate, size, top, up
from headgate.cli.command import Command, ExitStatus, Parser
from headgate.errors import HeadgateError, NotationError, pointed_at
from headgate.terminal import is_terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

_COMMANDS: Final[tuple[Command, ...]] = (
    up.COMMAND,
    serve.COMMAND,
    gateway.COMMAND,
    rules.COMMAND,
    top.COMMAND,
    keys.COMMAND,
    size.COMMAND,
    simulate.COMMAND,
    loadtest.COMMAND,
    completion.COMMAND,
)
_INDENT: Final = "  "
_INTERRUPTED: Final = 130  # the exit status that shells use for Ctrl-C
_HELP: Final = """\
`headgate`: the command.

Run a gateway, serve decisions, work on rules, inspect counters.

examples:
  headgate up
  headgate serve --rules rules.yaml
  headgate keys --store redis://localhost:6379/0 'user:*'"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with the arguments *argv* and return its exit status.

    0: done; 1: the answer is no; 2: wrong usage, or a store that does not answer. A
    `HeadgateError` becomes one line on stderr and the exit status 2.
    """
    _prepare_streams()
    try:
        status = _run(argv)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitStatus.DONE
    except KeyboardInterrupt:
        return _INTERRUPTED
    except OSError as error:
        print(f"headgate: cannot write: {error.strerror or error}", file=sys.stderr)
        return ExitStatus.WRONG
    return status


def _prepare_streams() -> None:
    """Make sure that no character makes printing fail."""
    if sys.stdout is None:  # closed by the caller, as with `>&-`
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run(argv: Sequence[str] | None) -> int:
    try:
        arguments = root_parser().parse_args(argv)
    except SystemExit as exit_:  # argparse has printed help or an error
        return ExitStatus.DONE if exit_.code is None else int(exit_.code)
    command: Command = arguments.command
    if command.run is None:
        arguments.parser.print_help()
        return ExitStatus.WRONG
    try:
        return command.run(arguments)
    except HeadgateError as error:
        print(f"headgate {command.name}: {_message(error)}", file=sys.stderr)
        return ExitStatus.WRONG


def _message(error: HeadgateError) -> str:
    """*error* on one line; on a terminal a limit that is wrong has a caret below the mistake."""
    if isinstance(error, NotationError):
        where = f", at character {error.position + 1}"
        said = f"{error.problem}; {error.wanted}" if error.expected else error.problem
        if not is_terminal(sys.stderr):
            return f"not a limit{where}: {said}"
        width = get_terminal_size().columns - len(_INDENT)
        lines = pointed_at(error.text, error.position, width)
        return "\n".join((f"not a limit: {said}", *(f"{_INDENT}{line}" for line in lines)))
    return " ".join(str(error).split())


def root_parser() -> Parser:
    """The parser of `headgate` with all its commands."""
    parser = Parser(Command("headgate", _HELP, commands=_COMMANDS), prog="headgate")
    parser.add_argument("--version", action="version", version=f"headgate {__version__}")
    return parser
