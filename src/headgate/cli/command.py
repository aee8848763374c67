"""A subcommand, its argument parser, and the options and exit statuses that commands share."""

from __future__ import annotations

import os
from argparse import (
    PARSER,
    SUPPRESS,
    Action,
    ArgumentError,
    ArgumentParser,
    ArgumentTypeError,
    Namespace,
    RawDescriptionHelpFormatter,
)
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NoReturn

from headgate.cli.terminal import without_secrets

if TYPE_CHECKING:
    from argparse import _SubParsersAction
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headgate.config import Setting


class ExitStatus(IntEnum):
    """The exit status of a command."""

    DONE = 0
    NO = 1
    """The answer is no, for example because the key does not exist."""
    WRONG = 2
    """Wrong usage, or a store that does not answer. One line on stderr says what is wrong."""


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: its help, its arguments and its function; or a group of *commands*."""

    name: str
    summary: str
    description: str
    examples: str
    add_arguments: Callable[[ArgumentParser], None] | None = None
    run: Callable[[Namespace], ExitStatus] | None = None
    commands: tuple[Command, ...] = ()


class Parser(ArgumentParser):
    """The argument parser of *command*.

    Its arguments are added on first use, because some of them are slow to import. It reports an
    error in one line, suggests the nearest word for a mistyped one, and repeats no password.
    """

    def __init__(self, command: Command, **options: Any) -> None:
        super().__init__(
            description=command.description,
            epilog=command.examples,
            formatter_class=RawDescriptionHelpFormatter,
            allow_abbrev=False,  # an option added later would break scripts
            **options,
        )
        self._command = command
        self._is_complete = False
        self.set_defaults(command=command, parser=self)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Namespace | None = None
    ) -> tuple[Namespace, list[str]]:
        """Parse *args*. Reports an unknown argument here, where its neighbours are known."""
        self._complete()
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = (word.partition("=")[0] for word in unknown if word.startswith("-"))
            hints = (_suggestion(word, self._option_string_actions) for word in options)
            self.error(
                f"unrecognized arguments: {' '.join(unknown)}{next(filter(None, hints), '')}"
            )
        return found, unknown

    def format_help(self) -> str:
        self._complete()
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        line = " ".join(without_secrets(message).split())
        self.exit(ExitStatus.WRONG, f"{self.prog}: {line}; see {self.prog} --help\n")

    def arguments(self) -> Iterator[Action]:
        """All arguments but the subcommand, for shell completion."""
        self._complete()
        return (action for action in self._actions if action.nargs != PARSER)

    def subparsers(self) -> dict[str, Parser]:
        """The parsers of the subcommands by name, for shell completion."""
        self._complete()
        groups = (action.choices for action in self._actions if action.nargs == PARSER)
        return {
            name: one for group in groups if isinstance(group, dict) for name, one in group.items()
        }

    def _complete(self) -> None:
        """Add the arguments and subcommands."""
        if self._is_complete:
            return
        self._is_complete = True
        if self._command.add_arguments is not None:
            self._command.add_arguments(self)
        if self._command.commands:
            group: _SubParsersAction[Any] = self.add_subparsers(title="commands", metavar="COMMAND")
            for one in self._command.commands:
                group.add_parser(one.name.rpartition(" ")[2], help=one.summary, command=one)

    def _check_value(self, action: Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        hint = _suggestion(str(value), action.choices) or f"; expected {', '.join(action.choices)}"
        if action.nargs == PARSER:
            raise ArgumentError(None, f"unknown command {value!r}{hint}")
        raise ArgumentError(action, f"unknown value {value!r}{hint}")


def _suggestion(word: str, known: Iterable[str]) -> str:
    """The nearest of the *known* words as a hint; empty if none is near."""
    from difflib import get_close_matches

    names = {name.lstrip("-"): name for name in known}
    nearest = get_close_matches(word.lstrip("-"), names, n=1)
    return f" (did you mean {names[nearest[0]]}?)" if nearest else ""


def add_setting(
    parser: ArgumentParser, flag: str, *, variable: str, metavar: str, meaning: str, **options: Any
) -> None:
    """Add an option with a value from *flag*, else from *variable*, else the default.

    An empty variable counts as not set. Its value is parsed like that of the flag.
    """
    value = os.environ.get(variable)
    if value:
        options["default"] = value
    parser.add_argument(flag, metavar=metavar, help=f"{meaning} [{variable}]", **options)


def add_store(parser: ArgumentParser) -> None:
    """Add `--store`, without a default."""
    add_setting(
        parser,
        "--store",
        variable="HEADGATE_STORE",
        metavar="URL",
        meaning="the store with the counters: redis://host:6379/0",
    )


def add_json(parser: ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def whole_number(text: str) -> int:
    """*text* as an integer of at least 1, for argparse."""
    if text.isascii() and text.isdecimal() and len(text) < 16 and int(text) > 0:
        return int(text)
    raise ArgumentTypeError(f"{text!r} is not a whole number of at least 1")


# Settings as flags of a command.


class _HelpAll(Action):
    """Print the help with every option; `--help` has the common ones only."""

    def __call__(self, parser: ArgumentParser, *_: object) -> None:
        for action, text in self.const:
            action.help = text
        parser.print_help()
        parser.exit()


def add_setting_flags(parser: ArgumentParser, settings: Iterable[Setting]) -> None:
    """Add a flag for each of *settings* that may be one: the common ones first, the others, which
    `--help` leaves out, under the headings of their groups."""
    full: list[tuple[Action, str]] = []
    text = "list every option and its variable, in groups, and exit"
    parser.add_argument("--help-all", action=_HelpAll, nargs=0, const=full, help=text)
    groups = {"": parser.add_argument_group("common options")}
    for one in settings:
        if one.flag is None:
            continue
        title = "" if one.is_common else one.group
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        action = groups[title].add_argument(
            one.flag,
            dest=_dest(one),
            metavar=_metavar(one),
            action="append" if one.option.is_listed else "store",
            help=_brief(one) if one.is_common else SUPPRESS,
        )
        full.append((action, _help(one)))


def given_flags(
    arguments: Namespace, settings: Iterable[Setting]
) -> dict[str, str | Sequence[str] | None]:
    """The flag of each of *settings* by its name; None if it was not given."""
    return {one.name: getattr(arguments, _dest(one), None) for one in settings}


def _dest(one: Setting) -> str:
    return f"setting_{one.name}"


def _metavar(one: Setting) -> str:
    """The word that stands for the value: the one that `expected` has in capitals."""
    word = one.option.expected.partition(" ")[0].partition(",")[0]
    return word if word.isupper() else "SECONDS" if word == "seconds" else "WORD"


def _brief(one: Setting) -> str:
    """The help of a common setting, on one line."""
    from headgate.config.declaration import default_of

    text = one.meaning.partition(";")[0].partition(":")[0]
    return f"{text} ({default_of(one)})" if default_of(one) else text


def _help(one: Setting) -> str:
    from headgate.config.declaration import default_of

    expected = f": {one.option.expected}" if _metavar(one) == "WORD" else ""
    default = default_of(one)
    text = f"{one.meaning}{expected} (default {default})" if default else f"{one.meaning}{expected}"
    return f"{text} [{one.variable}]"
