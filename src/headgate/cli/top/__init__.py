"""`headgate top`: show what a service limits, live.

Show what a service allows and denies, by rule and second: the busiest and the most denied keys, the
effect of candidate rules, and the health of store and policy. The figures are those of one node,
all its workers together.

On a terminal it runs until you press q; press ? for the other keys. Otherwise, and with --once, it
prints one snapshot. It needs an admin token (the role read is enough) from --token-file or
HEADGATE_ADMIN_TOKEN.

examples:
  headgate top
  headgate top --url https://headgate.internal:8090 --token-file /run/secrets/headgate
  headgate top --url unix:/run/headgate.sock --rule per-tenant
  headgate top --once | head -20
  headgate top --json | jq '.rules[] | select(.denied > 0)'

exit status: 0 done; 1 the rule does not exist; 2 wrong usage, or no response from the service
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING, Final

from headgate.cli.command import JSON, Command, ExitStatus, argument, flag, time_ns
from headgate.terminal import is_terminal, rendered, require_rich
from headgate.units import SECOND

if TYPE_CHECKING:
    from argparse import Namespace

    from headgate.cli.admin_client import AdminClient

_URL: Final = "http://127.0.0.1:8090"
_SHORTEST_S, _LONGEST_S = 0.1, 3600.0
_DEFAULT_WIDTH: Final = 100


def _interval(text: str) -> float:
    seconds = time_ns(text) / SECOND
    if not _SHORTEST_S <= seconds <= _LONGEST_S:
        raise ArgumentTypeError(f"{text!r} is not a time from 100ms to 3600s, such as 500ms or 1s")
    return seconds


_ARGUMENTS: Final = (
    argument(
        "--url",
        "URL",
        f"the service (default {_URL}); unix:PATH for a socket",
        variable="HEADGATE_URL",
        default=_URL,
    ),
    argument("--token-file", "FILE", "a file with the token (default HEADGATE_ADMIN_TOKEN)"),
    argument("--interval", "TIME", "polling interval (default 1s)", type=_interval, default="1s"),
    flag("--once", "print one snapshot and exit"),
    argument("--rule", "ID", "show this rule only"),
    JSON,
)


def _run(arguments: Namespace) -> ExitStatus:
    from headgate.cli.admin_client import AdminClient, admin_token

    client = AdminClient(arguments.url, admin_token(arguments.token_file))
    is_live = is_terminal(sys.stdout) and os.environ.get("TERM", "dumb") != "dumb"
    if arguments.json or arguments.once or not is_live:
        return _print(client, arguments)
    require_rich()
    from headgate.cli.top.screen import show

    show(client, arguments.url, arguments.interval, arguments.rule)
    return ExitStatus.DONE


COMMAND: Final = Command("top", __doc__, _ARGUMENTS, _run)


def _print(client: AdminClient, arguments: Namespace) -> ExitStatus:
    """Print one snapshot, or the JSON of the service."""
    from headgate.cli.admin_client import AdminError
    from headgate.cli.top.figures import PATH, read_live

    try:
        data = client.get(PATH)
    except AdminError as error:
        raise AdminError(f"no figures from {arguments.url}: {error}") from error
    live, rule = read_live(data), arguments.rule
    if arguments.json:
        print(json.dumps(data, indent=2))
    else:
        require_rich()
        from headgate.cli.top.display import Picture, View

        width = shutil.get_terminal_size((_DEFAULT_WIDTH, 0)).columns
        picture = Picture(arguments.url, live, View(only=rule), is_screen=False)
        print(rendered(picture, width))
    is_known = rule is None or any(one.rule_id == rule for one in live.rules)
    return ExitStatus.DONE if is_known else ExitStatus.NO
