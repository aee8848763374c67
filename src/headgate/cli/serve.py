"""`headgate serve`: the decision service."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from headgate.cli.command import Command, ExitStatus, add_setting_flags, given_flags

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable

    from headgate.config.service import Gathered
    from headgate.policy.problems import Problem

_DESCRIPTION: Final = """\
Serve decisions over HTTP and gRPC: to Envoy (RLS, RLQS, ext_authz), nginx, Caddy, Traefik, and to
code in any language.

Every option can also be set in a file (--config) or in a variable; a flag overrides a variable, a
variable overrides the file. SIGTERM drains, SIGHUP reads the rules again."""
_EXAMPLES: Final = """\
examples:
  headgate serve --rules rules.yaml
  headgate serve --rules policies/ --store redis://localhost:6379/0 --workers 4
  headgate serve --rules etcd://10.0.0.1:2379,10.0.0.2:2379/headgate --config headgate.yaml
  headgate serve --envoy-config ratelimit/config --grpc 0.0.0.0:8091
  headgate serve --config headgate.yaml --check

exit status: 0 stopped by a signal; 1 requests were cut off, or --check finds invalid rules; 2
wrong usage, or it cannot start"""


def _add_arguments(parser: ArgumentParser) -> None:
    from headgate.config.service import SETTINGS

    parser.add_argument("--config", metavar="FILE", help="settings, YAML or JSON [HEADGATE_CONFIG]")
    parser.add_argument(
        "--check", action="store_true", help="check settings, certificates and rules, and exit"
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON, for programs: as --log-format json"
    )
    add_setting_flags(parser, SETTINGS)


def _run(arguments: Namespace) -> ExitStatus:
    from headgate.config.gateway import SETTINGS as GATEWAY
    from headgate.config.service import SETTINGS, SettingsError, gather

    flags = given_flags(arguments, SETTINGS)
    if arguments.json and flags["log_format"] is None:
        flags["log_format"] = "json"
    try:
        gathered = gather(
            flags=flags, variables=os.environ, config=arguments.config, others=GATEWAY
        )
    except SettingsError as error:
        _print_problems(error.problems, is_json=arguments.json)
        return ExitStatus.WRONG
    return _check(arguments, gathered) if arguments.check else _serve(arguments, gathered)


COMMAND: Final = Command(
    "serve", "run the decision service", _DESCRIPTION, _EXAMPLES, _add_arguments, _run
)


def _check(arguments: Namespace, gathered: Gathered) -> ExitStatus:
    from headgate.policy.problems import PolicyError
    from headgate.service.running import check

    try:
        notes = check(gathered.settings)
    except PolicyError as error:
        _print_problems(error.problems, is_json=arguments.json)
        return ExitStatus.NO
    lines = [*map(str, gathered.warnings), *notes]
    if arguments.json:
        print(json.dumps({"ok": True, "told": lines}))
    else:
        print("\n".join([*lines, "the configuration is valid"]))
    return ExitStatus.DONE


def _serve(arguments: Namespace, gathered: Gathered) -> ExitStatus:
    from headgate.policy.problems import PolicyError
    from headgate.service.running import run

    try:
        return ExitStatus(run(gathered.settings, gathered.warnings))
    except PolicyError as error:
        _print_problems(error.problems, is_json=arguments.json)
        return ExitStatus.WRONG


def _print_problems(problems: Iterable[Problem], *, is_json: bool) -> None:
    """Print *problems*, a line each on stderr, or JSON on stdout."""
    from headgate.cli.rules.texts import visible

    if is_json:
        print(json.dumps([asdict(problem) for problem in problems]))
        return
    for problem in problems:
        print(f"headgate serve: {visible(str(problem))}", file=sys.stderr)
