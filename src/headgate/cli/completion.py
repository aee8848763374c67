"""`headgate completion`: print a completion script for a shell.

Print a completion script for your shell: commands, options and the values of options that have a
fixed set of them.

examples:
  eval "$(headgate completion bash)"                   in ~/.bashrc
  eval "$(headgate completion zsh)"                    in ~/.zshrc, after compinit
  headgate completion fish > ~/.config/fish/completions/headgate.fish
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from headgate.cli.command import Command, ExitStatus, Parser, argument

if TYPE_CHECKING:
    from argparse import Action, Namespace
    from collections.abc import Iterator


_FUNCTION: Final = """\
_headgate() {
    local at=headgate found= i
    for ((i = %(first)s; i < %(current)s; i++)); do
        case "$at ${%(words)s[i]}" in
            %(paths)s) at="$at ${%(words)s[i]}" ;;
        esac
    done
    case "$at ${%(words)s[%(current)s - 1]}" in
%(values)s
        *) case "$at" in
%(known)s
        esac ;;
    esac
    %(end)s
}
"""
_BASH: Final = {
    "words": "COMP_WORDS",
    "first": "1",
    "current": "COMP_CWORD",
    "end": 'COMPREPLY=($(compgen -W "$found" -- "${COMP_WORDS[COMP_CWORD]}"))',
}
_ZSH: Final = {
    "words": "words",
    "first": "2",
    "current": "CURRENT",
    "end": "compadd -- ${=found} || _files",
}


def _run(arguments: Namespace) -> ExitStatus:
    from headgate.cli import root_parser

    print(_SCRIPTS[arguments.shell](root_parser()), end="")
    return ExitStatus.DONE


def bash_script(parser: Parser) -> str:
    """A script for bash."""
    script = _FUNCTION % {**_tables(parser), **_BASH}
    return f"{script}complete -o default -F _headgate headgate\n"


def zsh_script(parser: Parser) -> str:
    """A script for zsh."""
    script = _FUNCTION % {**_tables(parser), **_ZSH}
    return f"#compdef headgate\n{script}compdef _headgate headgate\n"


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
COMMAND: Final = Command(
    "completion",
    __doc__,
    (argument("shell", "SHELL", "bash, zsh or fish", choices=_SCRIPTS),),
    _run,
)


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
        for option in one.arguments():
            known += option.option_strings
            if option.choices is None:
                continue
            if not option.option_strings:
                known += option.choices
                continue
            names = "|".join(f'"{at} {name}"' for name in option.option_strings)
            values.append(f'        {names}) found="{" ".join(option.choices)}" ;;')
        paths.append(f'"{at}"')
        words.append(f'            "{at}") found="{" ".join(known)}" ;;')
    return {"paths": "|".join(paths), "known": "\n".join(words), "values": "\n".join(values)}


def _walk(parser: Parser, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Parser]]:
    yield path, parser
    for name, one in parser.subparsers().items():
        yield from _walk(one, (*path, name))
