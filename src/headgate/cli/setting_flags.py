"""Settings as flags of a command."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _ArgumentGroup
    from collections.abc import Iterable, Sequence

    from headgate.settings import Setting


def add_setting_flags(parser: ArgumentParser, settings: Iterable[Setting]) -> None:
    """Add a flag for each of *settings* that may be one, under the headings of their groups."""
    groups: dict[str, _ArgumentGroup] = {}
    for one in settings:
        if one.flag is None:
            continue
        if one.group not in groups:
            groups[one.group] = parser.add_argument_group(one.group)
        groups[one.group].add_argument(
            one.flag,
            dest=_dest(one),
            metavar=_metavar(one),
            action="append" if one.is_listed else "store",
            help=_help(one),
        )


def given_flags(
    arguments: Namespace, settings: Iterable[Setting]
) -> dict[str, str | Sequence[str] | None]:
    """What was given for each of *settings*, by its name; None for what was not."""
    return {one.name: getattr(arguments, _dest(one), None) for one in settings}


def _dest(one: Setting) -> str:
    return f"setting_{one.name}"


def _metavar(one: Setting) -> str:
    """The word that stands for the value: the one that `expected` has in capitals."""
    word = one.expected.partition(" ")[0].partition(",")[0]
    return word if word.isupper() else "SECONDS" if word == "seconds" else "WORD"


def _help(one: Setting) -> str:
    from headgate.settings.telling import default_of

    expected = f": {one.expected}" if _metavar(one) == "WORD" else ""
    default = default_of(one)
    told = f"{one.meaning}{expected} (default {default})" if default else f"{one.meaning}{expected}"
    return f"{told} [{one.variable}]"
