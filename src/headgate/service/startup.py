"""`headgate serve` from the settings to the exit status: bind, then one worker or several."""

from __future__ import annotations

import logging
import os
import secrets
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from headgate import __version__
from headgate.errors import OptionError
from headgate.service.logs import configure_logs, log
from headgate.service.sockets import listen_as
from headgate.service.sources import check_sources, is_etcd, kept_policy, shown_store
from headgate.terminal import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.config.service import Settings
    from headgate.policy.problems import Problem
    from headgate.service.container import Report
    from headgate.service.sockets import BoundSocket, BoundSockets

_SECRET_BYTES: Final = 32
_STDERR: Final = 2


def check(settings: Settings) -> tuple[str, ...]:
    """Check *settings* and the rules they name without serving or connecting; a summary.

    Raises `HeadgateError`: `PolicyError` for rules, others for URLs, files and packages.
    """
    from headgate.service.container import (
        http_options,
        rlqs_options,
        rls_options,
        store_of,
        tls_context,
    )
    from headgate.stores.factory import open_store

    store = store_of(settings)
    if isinstance(store, str):
        open_store(store, None)
    for options in (http_options, rls_options, rlqs_options):
        options(settings)
    tls_context(settings, "http")
    tls_context(settings, "grpc")
    return check_sources(settings)


def run(settings: Settings, warnings: Iterable[Problem] = ()) -> int:
    """Serve until a signal; the exit status. Raises `HeadgateError` if it cannot start."""
    hold_standard_files()
    configure_logs(settings)
    for warning in warnings:
        log(str(warning), level=logging.WARNING)
    _check_policy(settings)
    settings = _without_missing_grpc(_with_secret(settings))
    sockets = listen_as(settings)
    try:
        status = _run(settings, sockets)
    finally:
        sockets.close()
        sockets.remove()
    log("stopped" if status == 0 else "stopped, not cleanly", event="stopped", status=status)
    return status


def _run(settings: Settings, sockets: BoundSockets) -> int:
    def on_ready(report: Report) -> None:
        _log_start(settings, sockets, report)

    if settings.workers > 1:
        from headgate.service.supervisor import Workers, WorkerSupervisor

        with closing(Workers(settings, sockets)) as workers:
            return WorkerSupervisor(workers, on_ready=on_ready).run()
    from headgate.service.worker import Worker

    return Worker(
        settings,
        http=[one.sock for one in sockets.http],
        grpc=[one.sock for one in sockets.grpc[0]],
        on_ready=on_ready,
        is_alone=True,
    ).run()


def _check_policy(settings: Settings) -> None:
    """Raise `PolicyError` for files that no worker could start with, before anything is logged."""
    kept = kept_policy(settings)
    has_fallback = kept is not None and kept.exists()
    if not has_fallback and not is_etcd(settings.rules or ""):
        check_sources(settings)


def hold_standard_files() -> None:
    """Open files 0 to 2 if they are closed; otherwise a socket would become stdin or stderr."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(number, True)  # noqa: FBT003 - as it is called
    os.close(number)


def _with_secret(settings: Settings) -> Settings:
    if settings.secret:
        return settings
    message = (
        "no secret is set: reservations made now cannot be settled after a restart, "
        "nor at another replica; set HEADGATE_SECRET or secret_file"
    )
    log(message, level=logging.WARNING)
    return replace(settings, secret=secrets.token_bytes(_SECRET_BYTES))


def _without_missing_grpc(settings: Settings) -> Settings:
    """*settings* without gRPC if its package is not installed: HTTP is served all the same.

    Raises `OptionError` if nothing else would be served.
    """
    if not settings.grpc or find_spec("zttp") is not None:
        return settings
    message = (
        "gRPC is not available, so neither RLS nor RLQS is served: the package zttp is not"
        " installed (pip install 'headgate[service]'; some platforms have no wheel of it)"
    )
    if not settings.http:
        raise OptionError(message)
    log(message, level=logging.WARNING)
    return replace(settings, grpc=())


def _log_start(settings: Settings, sockets: BoundSockets, report: Report) -> None:
    """Log the addresses, the rules and the store."""
    grpc = {id(one): one for own in sockets.grpc for one in own}.values()
    lines = [f"headgate {__version__} serves with {counted(settings.workers, 'worker')}"]
    lines += _listening("HTTP", sockets.http, settings.http_tls_cert, settings.http_tls_client_ca)
    lines += _listening("gRPC", grpc, settings.grpc_tls_cert, settings.grpc_tls_client_ca)
    lines += [*counting(settings, report), _admin(settings)]
    lines += [f"not ready: {reason}" for reason in report.not_ready]
    log(
        "\n  ".join(lines) if settings.log_format == "text" else lines[0],
        event="started",
        version=__version__,
        workers=settings.workers,
        http=[str(one.at) for one in sockets.http],
        grpc=[str(one.at) for one in grpc],
        rules=settings.rules and shown_store(settings.rules),
        revision=report.revision,
        rule_count=report.rules,
        envoy_config=settings.envoy_config,
        domain_count=report.domains,
        store=shown_store(settings.store),
        admin="open" if settings.has_admin else "closed",
        not_ready=report.not_ready,
    )


def _listening(
    what: str, sockets: Iterable[BoundSocket], certificate: str | None, client_ca: str | None
) -> list[str]:
    tls = (
        ""
        if certificate is None
        else " (TLS)"
        if client_ca is None
        else " (TLS, with client certificates)"
    )
    return [f"{what}: {one.at}{tls}" for one in sockets]


def counting(settings: Settings, report: Report) -> list[str]:
    """Lines about the rules in force and the store."""
    lines = []
    if settings.rules is not None:
        where = shown_store(settings.rules)
        if report.revision is None:
            lines.append(f"rules: {where}, none in force yet")
        else:
            count = counted(report.rules, "rule")
            lines.append(f"rules: {where}, revision {report.revision}, {count}")
    if settings.envoy_config is not None:
        count = counted(report.domains, "domain")
        lines.append(f"envoy config: {settings.envoy_config}, {count}")
    return [*lines, f"counters: {shown_store(settings.store)}"]


def _admin(settings: Settings) -> str:
    if not settings.has_admin:
        return "admin API: closed; a token opens it (HEADGATE_ADMIN_TOKEN)"
    count = len(settings.admin_tokens) + bool(settings.admin_token)
    text = f"admin API: open to {counted(count, 'token')}"
    certificates = len(settings.admin_certificates)
    return f"{text} and {counted(certificates, 'certificate')}" if certificates else text
