"""The `headgate` command.

A subcommand is a module with a `COMMAND` (see `command`), named in `_COMMANDS`. It is imported
whenever the command starts, so whatever is slow to import, or needs an extra, is imported when it
runs. Whatever it raises that is a `HeadgateError` becomes one line on stderr and the exit status 2.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, Final

from headgate import __version__
from headgate.cli import gateway, keys, loadtest, rules, serve, simulate, size, top, up
from headgate.cli.command import Command, ExitStatus, Parser
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from argparse import _SubParsersAction
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
)
_INTERRUPTED: Final = 130  # what a shell says of a command that was ended by Ctrl-C


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with the arguments *argv*; its exit status.

    0: done; 1: the answer is no; 2: wrong usage, or a store that cannot be asked.
    """
    _ready_streams()
    try:
        status = _run(argv)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitStatus.DONE
    except KeyboardInterrupt:
        return _INTERRUPTED
    except OSError as error:
        print(f"headgate: cannot write: {error.strerror or error}", file=sys.stderr)
        return ExitStatus.WRONG
    return status


def _ready_streams() -> None:
    """See to it that nothing that is printed is a reason to fail."""
    if sys.stdout is None:  # closed by the caller, as with `>&-`
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run(argv: Sequence[str] | None) -> int:
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as exit_:  # argparse has printed what there is to say
        return ExitStatus.DONE if exit_.code is None else int(exit_.code)
    command: Command = arguments.command
    try:
        return command.run(arguments)
    except HeadgateError as error:
        print(f"headgate {command.name}: {' '.join(str(error).split())}", file=sys.stderr)
        return ExitStatus.WRONG


def _parser() -> Parser:
    parser = Parser(
        prog="headgate",
        description="Run a gateway, serve decisions, work on rules, look at counters.",
        epilog="examples:\n  headgate up\n  headgate serve --rules rules.yaml\n"
        "  headgate keys --store redis://localhost:6379/0 'user:*'",
    )
    parser.add_argument("--version", action="version", version=f"headgate {__version__}")
    commands: _SubParsersAction[Any] = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True
    )
    for command in _COMMANDS:
        one = commands.add_parser(
            command.name,
            help=command.summary,
            description=command.description,
            epilog=command.examples,
        )
        command.add_arguments(one)
        one.set_defaults(command=command)
    return parser
