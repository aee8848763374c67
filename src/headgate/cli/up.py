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
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any, Final

from headgate.cli.command import Command, ExitStatus
from headgate.cli.serve import ARGUMENTS, flags_of, print_checked, reporting
from headgate.terminal import is_terminal

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Mapping

    from headgate.config import Contradiction, Setting, Values
    from headgate.config.service import Settings
    from headgate.gateway.processes.options import ServiceOptions, UpOptions

_DEMO: Final = "demo"
_TOKEN_BYTES: Final = 24
_SECRET_BYTES: Final = 32
_LEAST_MESSAGE: Final = 32 * 1024 * 1024
"""Bytes of the largest message of Envoy: usage reports of thousands of buckets."""

_PLACED: Final = frozenset(("rules", "grpc"))
"""Settings that the gateway adds, because they name files in its directory."""


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
        is_terminal=is_terminal(sys.stderr),
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
    return print_checked([*lines, *check(options)], is_json=arguments.json)


# The settings of the service for its configuration file.


def service_options(settings: Settings) -> ServiceOptions:
    """The options of a service with *settings*.

    Generates a secret if there is none, so that reservations survive a restart of the service.
    """
    from headgate.gateway.processes.options import ServiceOptions

    if not settings.secret:
        settings = replace(settings, secret=secrets.token_hex(_SECRET_BYTES).encode())
    settings = replace(settings, max_message=max(settings.max_message, _LEAST_MESSAGE))
    kept = {
        name: getattr(settings, name)
        for name in ("salt", "secret", "admin_token")
        if getattr(settings, name)
    }
    return ServiceOptions(
        config=service_config(settings),
        secrets=kept,
        http=settings.http,
        grpc=settings.grpc,
        workers=settings.workers,
        linger=settings.linger,
        drain=settings.drain,
    )


def service_config(settings: Settings) -> dict[str, object]:
    """*settings* as the content of a file, without secrets and empty values."""
    config = {}
    for one in fields(settings):
        value = getattr(settings, one.name)
        is_secret = isinstance(value, bytes) or one.name.endswith("_file")
        if value is None or one.name in _PLACED or (is_secret and one.name != "audit_file"):
            continue
        config[one.name] = _written(one.name, value)
    return {name: value for name, value in config.items() if value is not None}


def _written(name: str, value: Any) -> object:
    if name == "socket_mode":
        return f"{value:o}"
    if name == "admin_tokens":
        tokens = ({"name": one.name, "role": one.role, "sha256": one.digest.hex()} for one in value)
        return list(tokens) or None
    if name == "admin_certificates":
        return [asdict(one) for one in value] or None
    if name == "region_peers":
        return [f"{one.name}={one.store}" for one in value] or None
    if isinstance(value, float) and value.is_integer():
        return int(value)  # the file has 0 for a time of 0.0
    if isinstance(value, tuple):
        return [str(one) for one in value] or "off"
    return value
