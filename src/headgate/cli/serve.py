"""`headgate serve`: run the decision service.

Serve decisions over HTTP and gRPC: to Envoy (RLS, RLQS, ext_authz), nginx, Caddy, Traefik, and to
code in any language.

Every option can also be set in a file (--config) or in a variable; a flag overrides a variable, a
variable overrides the file. SIGTERM drains, SIGHUP reads the rules again.

examples:
  headgate serve --rules rules.yaml
  headgate serve --rules policies/ --store redis://localhost:6379/0 --workers 4
  headgate serve --rules etcd://10.0.0.1:2379,10.0.0.2:2379/headgate --config headgate.yaml
  headgate serve --envoy-config ratelimit/config --grpc 0.0.0.0:8091
  headgate serve --config headgate.yaml --check

exit status: 0 stopped by a signal; 1 requests were cut off, or --check finds invalid rules; 2
wrong usage, or it cannot start
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from headgate.cli.command import Command, ExitStatus, argument, flag, given_flags

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable

    from headgate.cli.command import Flags
    from headgate.config import Setting


ARGUMENTS: Final = (
    argument("--config", "FILE", "settings, YAML or JSON [HEADGATE_CONFIG]"),
    flag("--check", "check settings, certificates and rules, and exit"),
    flag("--json", "print JSON, for programs: as --log-format json"),
)


def flags_of(arguments: Namespace, settings: Iterable[Setting]) -> Flags:
    """The flags of *settings*; `--json` implies that of the log format."""
    flags = given_flags(arguments, settings)
    if arguments.json and flags["log_format"] is None:
        flags["log_format"] = "json"
    return flags


def reporting(run: Callable[[Namespace], ExitStatus]) -> Callable[[Namespace], ExitStatus]:
    """*run*, with the problems of settings and rules printed: on stderr, or JSON on stdout."""

    def reported(arguments: Namespace) -> ExitStatus:
        from headgate.cli.policies import print_problems
        from headgate.config import SettingsError
        from headgate.policy.problems import PolicyError

        try:
            return run(arguments)
        except (SettingsError, PolicyError) as error:
            if arguments.json:
                print(json.dumps([asdict(problem) for problem in error.problems]))
            else:
                print_problems(error.problems, prefix=f"headgate {arguments.command.name}: ")
            is_no = arguments.check and isinstance(error, PolicyError)
            return ExitStatus.NO if is_no else ExitStatus.WRONG

    return reported


def print_checked(lines: Iterable[str], *, is_json: bool) -> ExitStatus:
    """Print the findings of `--check` on a valid configuration."""
    if is_json:
        print(json.dumps({"ok": True, "messages": list(lines)}))
    else:
        print("\n".join([*lines, "the configuration is valid"]))
    return ExitStatus.DONE


def _settings() -> Iterable[Setting]:
    from headgate.config.service import SETTINGS

    return SETTINGS


@reporting
def _run(arguments: Namespace) -> ExitStatus:
    from headgate.config.gateway import SETTINGS as GATEWAY
    from headgate.config.service import SETTINGS, gather
    from headgate.service.startup import check, run

    gathered = gather(
        flags=flags_of(arguments, SETTINGS),
        variables=os.environ,
        config=arguments.config,
        others=GATEWAY,
    )
    if arguments.check:
        lines = [*map(str, gathered.warnings), *check(gathered.settings)]
        return print_checked(lines, is_json=arguments.json)
    return ExitStatus(run(gathered.settings, gathered.warnings))


COMMAND: Final = Command("serve", __doc__, ARGUMENTS, _run, settings=_settings)
