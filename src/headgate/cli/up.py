r"""`headgate up`: run the gateway with the service.

Run a gateway: the real Envoy in front of your service, with the decision service beside it.
Without rules and upstream it runs a demo.

Every option can also be set in a file (--config) or in a variable; a flag overrides a variable, a
variable overrides the file. All options of headgate serve apply here too. SIGTERM drains, SIGHUP
reads the rules and certificates again.

examples:
  headgate up
  headgate up --rules my.yaml --upstream http://localhost:9000
  headgate up --rules my.yaml --upstream /shop=http://10.0.0.5:80 --upstream http://10.0.0.6:80
  headgate up --config headgate.yaml --listen 0.0.0.0:443 --listen-tls-cert my.crt \
      --listen-tls-key my.key
  headgate up --config headgate.yaml --check

exit status: 0 stopped by a signal; 1 requests were cut off, or --check finds invalid rules; 2
wrong usage, or it cannot start
"""

from __future__ import annotations

import os
import secrets
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from headgate.cli.command import Command, ExitStatus
from headgate.cli.serve import ARGUMENTS, flags_of, print_checked, reporting
from headgate.terminal import is_terminal

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Mapping

    from headgate.config import Contradiction, Setting, Values
    from headgate.gateway.processes.up import UpOptions

_DEMO: Final = "demo"
_TOKEN_BYTES: Final = 24
_SECRET_BYTES: Final = 32
_LEAST_MESSAGE: Final = 32 * 1024 * 1024
"""Bytes of the largest message of Envoy: usage reports of thousands of buckets."""


def _settings() -> tuple[Setting, ...]:
    from headgate.config.gateway import SETTINGS as GATEWAY
    from headgate.config.service import SETTINGS as SERVICE

    return (*GATEWAY, *SERVICE)


@reporting
def _run(arguments: Namespace) -> ExitStatus:
    from headgate.config import gather_values

    settings = _settings()
    values = gather_values(
        settings,
        flags=flags_of(arguments, settings),
        variables=os.environ,
        config=arguments.config,
        contradictions=_contradictions,
    )
    options = _options(values.values)
    return _check(arguments, values, options) if arguments.check else _up(values, options)


COMMAND: Final = Command("up", __doc__, ARGUMENTS, _run, settings=_settings)


def _contradictions(values: Mapping[str, Any]) -> Iterator[Contradiction]:
    """Contradictions between settings."""
    from headgate.config import gateway, service

    if not _is_demo(values):
        if values["rules"] is None:
            yield "rules", service.NO_RULES.replace(" or --envoy-config DIR", "")
        if not values["upstream"]:
            yield "upstream", "missing; pass --upstream http://localhost:9000"
    yield from service.contradictions({**values, **_own(values)})
    yield from gateway.contradictions(values)
    if values["grpc_tls_cert"] is not None:
        message = "Envoy connects to the service over a local socket, without TLS"
        yield "grpc_tls_cert", f"{message}; run headgate serve for other clients"


def _own(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the service that are not as the user gave them."""
    from headgate.gateway.processes.service import SOCKET

    return {
        "rules": values["rules"] or _DEMO,  # those of the demo are written later
        "grpc": (*values["grpc"], SOCKET),
        # Each of several workers has its own socket, so that Envoy uses all.
        "grpc_ports": "each" if values["workers"] > 1 else values["grpc_ports"],
        "max_message": max(values["max_message"], _LEAST_MESSAGE),
    }


def _is_demo(values: Mapping[str, Any]) -> bool:
    return values["rules"] is None and not values["upstream"]


def _options(values: Mapping[str, Any]) -> UpOptions:
    from headgate.config.gateway import NAMES as GATEWAY
    from headgate.config.gateway import GatewaySettings
    from headgate.config.service import NAMES as SERVICE
    from headgate.config.service import Settings
    from headgate.gateway.processes.up import UpOptions

    own = {name: values[name] for name in SERVICE}
    # A secret of its own lasts until the gateway ends: reservations survive a restart of a worker.
    own["secret"] = values["secret"] or secrets.token_hex(_SECRET_BYTES).encode()
    service = Settings(**own | _own(values))
    token = None if service.has_admin else secrets.token_urlsafe(_TOKEN_BYTES)
    if token is not None:
        service = replace(service, admin_token=token.encode())
    return UpOptions(
        gateway=GatewaySettings(**{name: values[name] for name in GATEWAY}),
        service=service,
        generated_token=token,
        is_terminal=is_terminal(sys.stderr),
        is_demo=_is_demo(values),
    )


def _up(values: Values, options: UpOptions) -> ExitStatus:
    import logging

    from headgate.gateway.processes.logs import report
    from headgate.gateway.processes.up import run
    from headgate.service.logs import configure_logs
    from headgate.service.startup import hold_standard_files

    hold_standard_files()
    configure_logs(options.service)
    for warning in values.warnings:
        report(str(warning), level=logging.WARNING)
    return ExitStatus(run(options))


def _check(arguments: Namespace, values: Values, options: UpOptions) -> ExitStatus:
    from headgate.gateway.processes.up import check
    from headgate.service.startup import check as check_service

    lines = list(map(str, values.warnings))
    if not options.is_demo:
        lines += check_service(options.service)
    return print_checked([*lines, *check(options)], is_json=arguments.json)
