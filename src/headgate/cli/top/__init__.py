"""`headgate top`: what a service is limiting, live, in a terminal."""

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
from headgate.errors import OptionError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from headgate.cli.top.client import Asker

_URL: Final = "http://127.0.0.1:8090"
_TOKEN: Final = "HEADGATE_ADMIN_TOKEN"  # noqa: S105 - the name of a variable
_INTERVAL: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|)")
_SHORTEST, _LONGEST = 0.1, 3600.0
_LONGEST_TOKEN: Final = 4096
_USUAL_WIDTH: Final = 100
_DESCRIPTION: Final = """\
Show what a service allows and denies, by rule and second: who is asking most, who is refused, what
candidate rules would have done, and whether the store and the rules are well. The figures are those
of one node, all its workers together.

On a terminal it goes on until you press q; ? tells the other keys. Anywhere else, and with --once,
it prints one picture. It reads with the admin token (the role read is enough), from --token-file or
HEADGATE_ADMIN_TOKEN."""
_EXAMPLES: Final = """\
examples:
  headgate top
  headgate top --url https://headgate.internal:8090 --token-file /run/secrets/headgate
  headgate top --url unix:/run/headgate.sock --rule per-tenant
  headgate top --once | head -20
  headgate top --json | jq '.rules[] | select(.denied > 0)'

exit status: 0 done; 1 there is no rule --rule; 2 wrong usage, or the service cannot be asked"""


def _add_arguments(parser: ArgumentParser) -> None:
    add_setting(
        parser,
        "--url",
        variable="HEADGATE_URL",
        metavar="URL",
        meaning=f"the service, {_URL} if not said; unix:PATH for a socket",
        default=_URL,
    )
    parser.add_argument(
        "--token-file", metavar="FILE", help=f"where the admin token is [else {_TOKEN}]"
    )
    parser.add_argument(
        "--interval",
        metavar="TIME",
        type=_seconds,
        default=1.0,
        help="how often to ask: 1s if not said, 500ms, 10s",
    )
    parser.add_argument("--once", action="store_true", help="print one picture and exit")
    parser.add_argument("--rule", metavar="ID", help="look at this rule alone")
    add_json(parser)


def _run(arguments: Namespace) -> ExitStatus:
    from headgate.cli.top.client import Asker

    asker = Asker(arguments.url, _token(arguments.token_file))
    is_terminal = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    if arguments.json or arguments.once or not is_terminal:
        with closing(asker):
            return _print(asker, arguments)
    from headgate.cli.top.screen import show

    show(asker, arguments.url, arguments.interval, arguments.rule)
    return ExitStatus.DONE


COMMAND: Final = Command(
    "top", "what a service is limiting, live", _DESCRIPTION, _EXAMPLES, _add_arguments, _run
)


def _print(asker: Asker, arguments: Namespace) -> ExitStatus:
    """Print one picture, as it is or as JSON."""
    from headgate.cli.top.client import LookError
    from headgate.cli.top.live import Page, Scene, read_live
    from headgate.cli.top.picture import picture
    from headgate.cli.top.text import plain
    from headgate.cli.top.view import View

    try:
        data = asker.look()
    except LookError as error:
        raise LookError(f"{arguments.url} does not say how it stands: {error}") from error
    live, rule = read_live(data), arguments.rule
    is_there = rule is None or any(one.rule_id == rule for one in live.rules)
    if arguments.json:
        print(json.dumps(data, indent=2))
    else:
        width = shutil.get_terminal_size((_USUAL_WIDTH, 0)).columns
        page = Page(width, is_ascii=not has_unicode())
        scene = Scene(live, arguments.url)
        for line in picture(scene, View(alone=rule), page, has_keys=False):
            print(plain(line))
    return ExitStatus.DONE if is_there else ExitStatus.NO


def has_unicode() -> bool:
    """Whether stdout takes more than ASCII."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def _token(path: str | None) -> str:
    """The admin token: from the file at *path*, else from the variable."""
    if path is None:
        token = os.environ.get(_TOKEN, "")
    else:
        try:
            with Path(path).open(encoding="ascii") as file:
                token = file.read(_LONGEST_TOKEN)
        except OSError as error:
            raise OptionError(f"--token-file {path}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise OptionError(f"--token-file {path}: a token has ASCII characters only") from error
    token = token.strip()
    if not token:
        where = _TOKEN if path is None else path
        raise OptionError(f"there is no admin token in {where}; set {_TOKEN} or give --token-file")
    if not token.isascii() or not token.isprintable():
        raise OptionError("the admin token has characters that cannot be sent")
    return token


def _seconds(text: str) -> float:
    found = _INTERVAL.fullmatch(text)
    seconds = 0.0 if found is None else float(found[1]) / (1000 if found[2] == "ms" else 1)
    if not _SHORTEST <= seconds <= _LONGEST:
        raise ArgumentTypeError(f"{text!r} is no time from 100ms to 3600s, such as 500ms or 1s")
    return seconds
