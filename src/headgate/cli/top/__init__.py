"""`headgate top`: the figures of a service, live in a terminal."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from argparse import ArgumentTypeError
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.cli.command import Command, ExitStatus, add_json, add_setting
from headgate.cli.terminal import rendered, require_rich
from headgate.errors import OptionError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from headgate.cli.top.client import LiveClient

_URL: Final = "http://127.0.0.1:8090"
_TOKEN: Final = "HEADGATE_ADMIN_TOKEN"  # noqa: S105 - the name of a variable
_INTERVAL: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|)")
_SHORTEST, _LONGEST = 0.1, 3600.0
_LONGEST_TOKEN: Final = 4096
_DEFAULT_WIDTH: Final = 100
_DESCRIPTION: Final = """\
Show what a service allows and denies, by rule and second: the busiest and the most denied keys, the
effect of candidate rules, and the health of store and policy. The figures are those of one node,
all its workers together.

On a terminal it runs until you press q; press ? for the other keys. Otherwise, and with --once, it
prints one picture. It needs an admin token (the role read is enough) from --token-file or
HEADGATE_ADMIN_TOKEN."""
_EXAMPLES: Final = """\
examples:
  headgate top
  headgate top --url https://headgate.internal:8090 --token-file /run/secrets/headgate
  headgate top --url unix:/run/headgate.sock --rule per-tenant
  headgate top --once | head -20
  headgate top --json | jq '.rules[] | select(.denied > 0)'

exit status: 0 done; 1 the rule does not exist; 2 wrong usage, or no response from the service"""


def _add_arguments(parser: ArgumentParser) -> None:
    add_setting(
        parser,
        "--url",
        variable="HEADGATE_URL",
        metavar="URL",
        meaning=f"the service (default {_URL}); unix:PATH for a socket",
        default=_URL,
    )
    parser.add_argument(
        "--token-file", metavar="FILE", help=f"file with the admin token (default {_TOKEN})"
    )
    parser.add_argument(
        "--interval",
        metavar="TIME",
        type=_seconds,
        default=1.0,
        help="polling interval, such as 500ms or 10s (default 1s)",
    )
    parser.add_argument("--once", action="store_true", help="print one picture and exit")
    parser.add_argument("--rule", metavar="ID", help="show this rule only")
    add_json(parser)


def _run(arguments: Namespace) -> ExitStatus:
    from headgate.cli.top.client import LiveClient

    client = LiveClient(arguments.url, _token(arguments.token_file))
    is_ascii = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    is_terminal = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    if arguments.json or arguments.once or not is_terminal:
        with closing(client):
            return _print(client, arguments, is_ascii=is_ascii)
    require_rich()
    from headgate.cli.top.screen import show

    show(client, arguments.url, arguments.interval, arguments.rule, is_ascii=is_ascii)
    return ExitStatus.DONE


COMMAND: Final = Command(
    "top", "show what a service limits, live", _DESCRIPTION, _EXAMPLES, _add_arguments, _run
)


def _print(client: LiveClient, arguments: Namespace, *, is_ascii: bool) -> ExitStatus:
    """Print one picture, or the JSON of the service."""
    from headgate.cli.top.client import LiveError, Snapshot, read_live

    try:
        data = client.get()
    except LiveError as error:
        raise LiveError(f"no figures from {arguments.url}: {error}") from error
    live, rule = read_live(data), arguments.rule
    if arguments.json:
        print(json.dumps(data, indent=2))
    else:
        require_rich()
        from headgate.cli.top.display import Picture, View

        width = shutil.get_terminal_size((_DEFAULT_WIDTH, 0)).columns
        picture = Picture(
            Snapshot(arguments.url, live), View(only=rule), is_ascii=is_ascii, has_footer=False
        )
        print(rendered(picture, width))
    is_there = rule is None or any(one.rule_id == rule for one in live.rules)
    return ExitStatus.DONE if is_there else ExitStatus.NO


def _token(path: str | None) -> str:
    """The admin token from the file at *path*, or from the variable."""
    if path is None:
        token = os.environ.get(_TOKEN, "")
    else:
        try:
            with Path(path).open(encoding="ascii") as file:
                token = file.read(_LONGEST_TOKEN)
        except OSError as error:
            raise OptionError(f"--token-file {path}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise OptionError(
                f"--token-file {path}: a token consists of ASCII characters"
            ) from error
    token = token.strip()
    if not token:
        where = _TOKEN if path is None else path
        raise OptionError(f"no admin token in {where}; set {_TOKEN} or pass --token-file")
    if not token.isascii() or not token.isprintable():
        raise OptionError("the admin token contains control characters")
    return token


def _seconds(text: str) -> float:
    found = _INTERVAL.fullmatch(text)
    seconds = 0.0 if found is None else float(found[1]) / (1000 if found[2] == "ms" else 1)
    if not _SHORTEST <= seconds <= _LONGEST:
        raise ArgumentTypeError(f"{text!r} is not a time from 100ms to 3600s, such as 500ms or 1s")
    return seconds
