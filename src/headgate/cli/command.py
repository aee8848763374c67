"""A subcommand, its argument parser, and the options and exit statuses that commands share."""

from __future__ import annotations

import os
import re
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
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from headgate.errors import NotationError, nearest
from headgate.limits import parse_rate
from headgate.terminal import without_secrets
from headgate.units import SECOND

if TYPE_CHECKING:
    from argparse import _SubParsersAction
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headgate.config import Setting

    Flags = dict[str, str | Sequence[str] | None]


class ExitStatus(IntEnum):
    """The exit status of a command."""

    DONE = 0
    NO = 1
    """The answer is no, for example because the key does not exist."""
    WRONG = 2
    """Wrong usage, or a store that does not answer. One line on stderr says what is wrong."""


class Argument(NamedTuple):
    """An argument of a command: *settings* are those of argparse.

    If *variable* is set and not empty, its value is the default and is parsed like that of a flag.
    """

    names: tuple[str, ...]
    settings: dict[str, Any]
    variable: str = ""

    def add_to(self, parser: ArgumentParser) -> None:
        """Add the argument to *parser*."""
        value = os.environ.get(self.variable)
        default = {"default": value} if value else {}
        parser.add_argument(*self.names, **{**self.settings, **default})


def argument(
    names: str, metavar: str | None, meaning: str, *, variable: str = "", **settings: Any
) -> Argument:
    """An argument with a value: a positional one, or an option with the flags in *names*."""
    text = f"{meaning} [{variable}]" if variable else meaning
    return Argument(tuple(names.split()), {"metavar": metavar, "help": text, **settings}, variable)


def flag(name: str, meaning: str) -> Argument:
    """An option without a value."""
    return Argument((name,), {"help": meaning, "action": "store_true"})


def repeated(names: str, metavar: str, meaning: str, **settings: Any) -> Argument:
    """An option that may be given several times."""
    return argument(names, metavar, meaning, action="append", default=[], **settings)


_MAX_WIDTH: Final = 100
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # of RFC 9110
JSON: Final = flag("--json", "print JSON, for programs")


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: its help, its arguments and its function; or a group of *commands*.

    *doc* is the docstring of its module: a first line with the summary after a colon, then the
    description, then the examples, which help prints below the options. *settings* returns the
    settings that are options of this command; it is a function because they are slow to import.
    """

    name: str
    doc: str | None
    arguments: tuple[Argument, ...] = ()
    run: Callable[[Namespace], ExitStatus] | None = None
    commands: tuple[Command, ...] = ()
    settings: Callable[[], Iterable[Setting]] | None = None

    @property
    def summary(self) -> str:
        line = (self.doc or "").partition("\n")[0]
        return line.partition(": ")[2].removesuffix(".")

    @property
    def description(self) -> str:
        return self._text.partition("\n\nexample")[0]

    @property
    def examples(self) -> str:
        _, start, rest = self._text.partition("\n\nexample")
        return f"{start}{rest}".strip()

    @property
    def _text(self) -> str:
        return (self.doc or "").partition("\n\n")[2].rstrip()


class Parser(ArgumentParser):
    """The argument parser of *command*.

    Its arguments are added on first use, because some of them are slow to import. It reports an
    error in one line, suggests the nearest word for a mistyped one, and repeats no password.
    """

    def __init__(self, command: Command, **options: Any) -> None:
        super().__init__(
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
        """Parse *args*. Rejects unknown arguments here, where the known ones can be suggested."""
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
        from textwrap import fill

        self._complete()
        width = min(get_terminal_size().columns, _MAX_WIDTH)
        paragraphs = self._command.description.split("\n\n")
        self.description = "\n\n".join(fill(one, width) for one in paragraphs)
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
        for argument in self._command.arguments:
            argument.add_to(self)
        if self._command.settings is not None:
            _add_settings(self, self._command.settings())
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
    names = {name.lstrip("-"): name for name in known}
    near = nearest(word.lstrip("-"), names)
    return "" if near is None else f" (did you mean {names[near]}?)"


def whole_number(text: str) -> int:
    """*text* as an integer of at least 1, for argparse."""
    if text.isascii() and text.isdecimal() and len(text) < 16 and int(text) > 0:
        return int(text)
    raise ArgumentTypeError(f"{text!r} is not a whole number of at least 1")


def number(text: str) -> float:
    """*text* as a number, for argparse."""
    try:
        return float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a number such as 0.25 or 2") from None


def time_ns(text: str) -> int:
    """*text*, such as 90, 90s, 1.5m or 250ms, in nanoseconds, for argparse."""
    try:
        return int(SECOND / parse_rate(f"1/{text}s" if text[-1:].isdecimal() else f"1/{text}"))
    except NotationError as error:
        raise ArgumentTypeError(f"{text!r} is not a time such as 10s, 5m or 500ms") from error


def pair(mark: str, expected: str) -> Callable[[str], tuple[str, str]]:
    """A reader of a name and a value with *mark* between them, for argparse."""

    def read(text: str) -> tuple[str, str]:
        name, found, value = (part.strip() for part in text.partition(mark))
        if not found or not _NAME.fullmatch(name) or not value.isprintable():
            # The text may be a secret.
            raise ArgumentTypeError(f"no name and value; expected {expected}")
        return name, value

    return read


# Settings as flags of a command.


class _HelpAll(Action):
    """Print the help with every option; `--help` lists only the common ones."""

    def __call__(self, parser: ArgumentParser, *_: object) -> None:
        for action, text in self.const:
            action.help = text
        parser.print_help()
        parser.exit()


def _add_settings(parser: ArgumentParser, settings: Iterable[Setting]) -> None:
    """Add a flag for each of *settings* that has one: the common ones first, then the others, by
    group, which only `--help-all` lists."""
    parser.usage = "%(prog)s [OPTION ...]"
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
            action="append" if one.is_listed else "store",
            help=_brief(one) if one.is_common else SUPPRESS,
        )
        full.append((action, _help(one)))


def given_flags(arguments: Namespace, settings: Iterable[Setting]) -> Flags:
    """The flag of each of *settings* by its name; None if it was not given."""
    return {one.name: getattr(arguments, _dest(one), None) for one in settings}


def _dest(one: Setting) -> str:
    return f"setting_{one.name}"


def _metavar(one: Setting) -> str:
    """The word for the value in help: the first of `expected` if it is in capitals."""
    word = one.expected.partition(" ")[0].partition(",")[0]
    return word if word.isupper() else "SECONDS" if word == "seconds" else "WORD"


def _brief(one: Setting) -> str:
    """The help of a common setting, on one line."""
    text = one.meaning.partition(";")[0].partition(":")[0]
    return f"{text} ({one.default_text})" if one.default_text else text


def _help(one: Setting) -> str:
    expected = f": {one.expected}" if _metavar(one) == "WORD" else ""
    default = f" (default {one.default_text})" if one.default_text else ""
    return f"{one.meaning}{expected}{default} [{one.variable}]"
