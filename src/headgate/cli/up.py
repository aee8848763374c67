"""`headgate up`: run Envoy and the decision service on one machine."""

from __future__ import annotations

import json
import os
import secrets
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from headgate.cli.command import Command, ExitStatus, add_setting_flags, given_flags

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Iterator, Mapping

    from headgate.config import Told, Values
    from headgate.config.service import Settings
    from headgate.gateway.processes.options import UpOptions
    from headgate.policy.problems import Problem

_DESCRIPTION: Final = """\
Run a gateway: the real Envoy in front of your service, with the decision service beside it.
Without rules and upstream it runs a demo.

Every option can also be set in a file (--config) or in a variable; a flag overrides a variable, a
variable overrides the file. All options of headgate serve apply here too. SIGTERM drains, SIGHUP
reads the rules and certificates again."""
_EXAMPLES: Final = """\
examples:
  headgate up
  headgate up --rules my.yaml --upstream http://localhost:9000
  headgate up --rules my.yaml --upstream /shop=http://10.0.0.5:80 --upstream http://10.0.0.6:80
  headgate up --config headgate.yaml --listen 0.0.0.0:443 --listen-tls-cert my.crt \\
      --listen-tls-key my.key
  headgate up --config headgate.yaml --check

exit status: 0 stopped by a signal; 1 requests were cut off, or --check finds invalid rules; 2
wrong usage, or it cannot start"""
_DEMO: Final = "demo"
_TOKEN_BYTES: Final = 24


def _add_arguments(parser: ArgumentParser) -> None:
    from headgate.config.gateway import SETTINGS as GATEWAY
    from headgate.config.service import SETTINGS as SERVICE

    parser.add_argument("--config", metavar="FILE", help="settings, YAML or JSON [HEADGATE_CONFIG]")
    parser.add_argument(
        "--check",
        action="store_true",
        help="check settings, certificates, rules and Envoy's configuration, and exit",
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON, for programs: as --log-format json"
    )
    add_setting_flags(parser, (*GATEWAY, *SERVICE))


def _run(arguments: Namespace) -> ExitStatus:
    from headgate.config import SettingsError
    from headgate.policy.problems import PolicyError

    is_checked = arguments.check
    try:
        values = _gathered(arguments)
        options = _options(values.values)
        return _check(arguments, values, options) if is_checked else _up(values, options)
    except SettingsError as error:
        _print_problems(error.problems, is_json=arguments.json)
        return ExitStatus.WRONG
    except PolicyError as error:
        _print_problems(error.problems, is_json=arguments.json)
        return ExitStatus.NO if is_checked else ExitStatus.WRONG


COMMAND: Final = Command(
    "up",
    "run the gateway with the service",
    _DESCRIPTION,
    _EXAMPLES,
    _add_arguments,
    _run,
)


def _gathered(arguments: Namespace) -> Values:
    """The settings of gateway and service from all sources. Raises `SettingsError`."""
    from headgate.config import gather_values
    from headgate.config.gateway import SETTINGS as GATEWAY
    from headgate.config.service import SETTINGS as SERVICE

    settings = (*GATEWAY, *SERVICE)
    flags = given_flags(arguments, settings)
    if arguments.json and flags["log_format"] is None:
        flags["log_format"] = "json"
    return gather_values(
        settings,
        flags=flags,
        variables=os.environ,
        config=arguments.config,
        contradictions=_contradictions,
    )


def _contradictions(values: Mapping[str, Any]) -> Iterator[Told]:
    """Contradictions between settings."""
    from headgate.config import gateway, service

    if not _is_demo(values):
        if values["rules"] is None:
            yield "rules", service.NO_RULES.replace(" or --envoy-config DIR", "")
        if not values["upstream"]:
            yield "upstream", "missing; pass --upstream http://localhost:9000"
    rules = values["rules"] or _DEMO  # reported above
    yield from service.contradictions({**values, "rules": rules, "grpc_ports": _grpc_ports(values)})
    yield from gateway.contradictions(values)
    if values["grpc_tls_cert"] is not None:
        message = "Envoy connects to the service over a local socket, without TLS"
        yield "grpc_tls_cert", f"{message}; run headgate serve for other clients"


def _is_demo(values: Mapping[str, Any]) -> bool:
    return values["rules"] is None and not values["upstream"]


def _grpc_ports(values: Mapping[str, Any]) -> str:
    """The port mode: each of several workers has its own socket, so that Envoy uses all."""
    return "each" if values["workers"] > 1 else values["grpc_ports"]


def _service(values: Mapping[str, Any]) -> Settings:
    """The settings of the service; the rules file of the demo does not exist yet."""
    from headgate.config.service import NAMES, Settings

    own = {name: values[name] for name in NAMES}
    own |= {"rules": values["rules"] or _DEMO, "grpc_ports": _grpc_ports(values)}
    return Settings(**own)


def _options(values: Mapping[str, Any]) -> UpOptions:
    from headgate.cli.up_settings import service_options
    from headgate.config.gateway import NAMES, GatewaySettings
    from headgate.gateway.processes.options import UpOptions
    from headgate.service.sources import is_etcd, kept_policy, open_source

    service = _service(values)
    token = None if service.has_admin else secrets.token_urlsafe(_TOKEN_BYTES)
    if token is not None:
        service = replace(service, admin_token=token.encode())
    return UpOptions(
        gateway=GatewaySettings(**{name: values[name] for name in NAMES}),
        service=service_options(service),
        rules=values["rules"],
        open_source=lambda place: open_source(place, read_only=True),
        may_arrive_later=is_etcd(values["rules"] or ""),
        keep=kept_policy(service),
        generated_token=token,
        is_json=service.log_format == "json",
        is_terminal=sys.stderr is not None and sys.stderr.isatty(),
        is_demo=_is_demo(values),
    )


def _up(values: Values, options: UpOptions) -> ExitStatus:
    import logging

    from headgate.gateway.processes.logs import report
    from headgate.gateway.processes.up import run
    from headgate.service.logs import configure_logs

    _open_closed_streams()
    configure_logs(_service(values.values))
    for warning in values.warnings:
        report(str(warning), level=logging.WARNING)
    return ExitStatus(run(options))


def _open_closed_streams() -> None:
    """Open closed standard streams on the null device, so that no socket takes their place."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # uses the lowest free descriptor, this one


def _check(arguments: Namespace, values: Values, options: UpOptions) -> ExitStatus:
    from headgate.gateway.processes.up import check
    from headgate.service.running import check as check_service

    lines = list(map(str, values.warnings))
    if not options.is_demo:
        lines += check_service(_service(values.values))
    lines += check(options)
    if arguments.json:
        print(json.dumps({"ok": True, "told": lines}))
    else:
        print("\n".join([*lines, "the configuration is valid"]))
    return ExitStatus.DONE


def _print_problems(problems: Iterable[Problem], *, is_json: bool) -> None:
    """Print *problems*, a line each on stderr, or JSON on stdout."""
    from headgate.cli.rules.texts import visible

    if is_json:
        print(json.dumps([asdict(problem) for problem in problems]))
        return
    for problem in problems:
        print(f"headgate up: {visible(str(problem))}", file=sys.stderr)
