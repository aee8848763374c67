"""What a subcommand is, and what all of them have in common: arguments, variables, exit status."""

from __future__ import annotations

import os
from argparse import (
    SUPPRESS,
    Action,
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
    from collections.abc import Callable, Iterable, Sequence

    from headgate.config import Setting


class ExitStatus(IntEnum):
    """How a command ends."""

    DONE = 0
    NO = 1
    """The answer is no: there is no such key."""
    WRONG = 2
    """Wrong usage, or a store that cannot be asked. One line on stderr says what."""


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: what its help says, which arguments it takes, and what it does."""

    name: str
    summary: str
    description: str
    examples: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], ExitStatus]


class Parser(ArgumentParser):
    """An `ArgumentParser` that says what is wrong in one line, and repeats no password."""

    def __init__(self, **options: Any) -> None:
        options["allow_abbrev"] = False  # or an option added later breaks somebody's script
        super().__init__(formatter_class=RawDescriptionHelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        line = " ".join(without_secrets(message).split())
        self.exit(ExitStatus.WRONG, f"{self.prog}: {line}; see {self.prog} --help\n")


def add_setting(
    parser: ArgumentParser, flag: str, *, variable: str, metavar: str, meaning: str, **options: Any
) -> None:
    """Add an option whose value comes from *flag*, else from *variable*, else the default.

    A variable that is empty is one that is not set. Its value is read as the flag's would be.
    """
    value = os.environ.get(variable)
    if value:
        options["default"] = value
    parser.add_argument(flag, metavar=metavar, help=f"{meaning} [{variable}]", **options)


def add_store(parser: ArgumentParser) -> None:
    """Add `--store`, for which there is no default."""
    add_setting(
        parser,
        "--store",
        variable="HEADGATE_STORE",
        metavar="URL",
        meaning="where the counters are, as the limiter is given it: redis://host:6379/0",
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
    """What was given for each of *settings*, by its name; None for what was not."""
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
    told = f"{one.meaning}{expected} (default {default})" if default else f"{one.meaning}{expected}"
    return f"{told} [{one.variable}]"
