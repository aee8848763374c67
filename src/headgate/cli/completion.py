"""`headgate completion`: a completion script for bash, zsh or fish, made from the parser."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from headgate.cli.command import Command, ExitStatus, Parser

if TYPE_CHECKING:
    from argparse import Action, ArgumentParser, Namespace
    from collections.abc import Iterator

_DESCRIPTION: Final = """\
Print a completion script for your shell: commands, options and the values of options that have a
fixed set of them."""
_EXAMPLES: Final = """\
examples:
  eval "$(headgate completion bash)"                   in ~/.bashrc
  eval "$(headgate completion zsh)"                    in ~/.zshrc, after compinit
  headgate completion fish > ~/.config/fish/completions/headgate.fish"""

_BASH: Final = """\
_headgate() {
    local at=headgate found= i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$at ${COMP_WORDS[i]}" in
            %(paths)s) at="$at ${COMP_WORDS[i]}" ;;
        esac
    done
    case "$at ${COMP_WORDS[COMP_CWORD - 1]}" in
%(values)s
        *) case "$at" in
%(words)s
        esac ;;
    esac
    COMPREPLY=($(compgen -W "$found" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _headgate headgate
"""
_ZSH: Final = """\
#compdef headgate
_headgate() {
    local at=headgate found= i
    for ((i = 2; i < CURRENT; i++)); do
        case "$at ${words[i]}" in
            %(paths)s) at="$at ${words[i]}" ;;
        esac
    done
    case "$at ${words[CURRENT - 1]}" in
%(values)s
        *) case "$at" in
%(words)s
        esac ;;
    esac
    compadd -- ${=found} || _files
}
compdef _headgate headgate
"""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=_SCRIPTS, help="bash, zsh or fish")


def _run(arguments: Namespace) -> ExitStatus:
    from headgate.cli import root_parser

    print(_SCRIPTS[arguments.shell](root_parser()), end="")
    return ExitStatus.DONE


COMMAND: Final = Command(
    "completion",
    "print a completion script for a shell",
    _DESCRIPTION,
    _EXAMPLES,
    _add_arguments,
    _run,
)


def bash_script(parser: Parser) -> str:
    """A script for bash."""
    return _BASH % _tables(parser)


def zsh_script(parser: Parser) -> str:
    """A script for zsh."""
    return _ZSH % _tables(parser)


def fish_script(parser: Parser) -> str:
    """A script for fish."""
    lines = []
    for path, one in _walk(parser, ()):
        commands = one.subparsers()
        seen = [f"__fish_seen_subcommand_from {name}" for name in path]
        if commands:
            seen.append(f"not __fish_seen_subcommand_from {' '.join(commands)}")
        start = f"complete -c headgate -n {shlex.quote('; and '.join(seen))}" if seen else ""
        lines += [f"{start} -f -a {name}" for name in commands]
        lines += [
            f"{start} {words}" for option in one.arguments() if (words := _fish_words(option))
        ]
    return "\n".join(lines) + "\n"


_SCRIPTS: Final = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}


def _fish_words(argument: Action) -> str:
    words = [
        f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
        for name in argument.option_strings
    ]
    if argument.choices is not None:
        words.append(f"-x -a {shlex.quote(' '.join(argument.choices))}")
    elif words and argument.nargs != 0:
        words.append("-r")
    return " ".join(words)


def _tables(parser: Parser) -> dict[str, str]:
    """The cases of the script: the known paths, the words after each, the values of options."""
    paths, words, values = [], [], []
    for path, one in _walk(parser, ()):
        at = " ".join(("headgate", *path))
        known = list(one.subparsers())
        for argument in one.arguments():
            known += argument.option_strings
            if argument.choices is None:
                continue
            if not argument.option_strings:
                known += argument.choices
                continue
            names = "|".join(f'"{at} {name}"' for name in argument.option_strings)
            values.append(f'        {names}) found="{" ".join(argument.choices)}" ;;')
        paths.append(f'"{at}"')
        words.append(f'            "{at}") found="{" ".join(known)}" ;;')
    return {"paths": "|".join(paths), "words": "\n".join(words), "values": "\n".join(values)}


def _walk(parser: Parser, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Parser]]:
    yield path, parser
    for name, one in parser.subparsers().items():
        yield from _walk(one, (*path, name))
