"""The gateway: start, follow changes, drain, stop.

checks -> policy read -> files written -> workers ready -> Envoy ready -> start reported
       ... policy changes -> files replaced ...
SIGTERM -> Envoy drains -> Envoy ends -> workers end -> files removed
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import tempfile
from contextlib import AsyncExitStack, ExitStack, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate import __version__
from headgate.config.gateway import Upstream
from headgate.control.files import PolicyFiles
from headgate.gateway.demo import DemoUpstream, dashboard_link, demo_rules, introduction
from headgate.gateway.envoy.documents import documents
from headgate.gateway.envoy.values import Places
from headgate.gateway.processes.certificates import check_certificates, warnings
from headgate.gateway.processes.configuration import ActivePolicy, Configuration
from headgate.gateway.processes.envoy import (
    LOCAL_COUNTERS,
    AdminError,
    Envoy,
    admin_place,
    drain,
    envoy_program,
    local_counts,
    validate,
)
from headgate.gateway.processes.logs import ENVOY_LOG, LEVELS, LOG, GatewayError, report
from headgate.gateway.processes.preflight import preflight, unreachable_warnings
from headgate.gateway.processes.run_directory import RULES_FILE, RunDirectory, run_directory
from headgate.gateway.processes.service import EnvoyWorker, behind_envoy, envoy_sockets
from headgate.observability.denials import FIELDS
from headgate.policy.model import Policy
from headgate.runtime.supervised_task import SupervisedTask
from headgate.runtime.supervisor import DONE, Child, Supervisor
from headgate.service.live.envoy_counts import EnvoyTotals
from headgate.service.live.recorder import REPORT_S
from headgate.service.sockets import listen_as
from headgate.service.sources import is_etcd, kept_policy, open_source, shown_store
from headgate.service.startup import counting
from headgate.service.supervisor import Workers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.config import Address
    from headgate.config.gateway import GatewaySettings
    from headgate.config.service import Settings
    from headgate.service.container import Report


TOKEN_FILE: Final = "admin_token.secret"  # noqa: S105 - the name of a file


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """The options of the gateway. The demo has its own rules and upstream.

    *generated_token* is the admin token if it was generated for this run.
    """

    gateway: GatewaySettings
    service: Settings
    generated_token: str | None = None
    is_terminal: bool = False
    is_demo: bool = False


def report_start(
    options: UpOptions, directory: RunDirectory, report: Report, *, pids: Mapping[str, object]
) -> None:
    """Report the addresses, the files, and the *report* of the service."""
    fields = {**_fields(options, directory, report), **pids}
    title = f"headgate {__version__} is up"
    if options.service.log_format == "json":
        LOG.info(title, extra={FIELDS: fields})
    elif options.is_demo:
        shown = introduction(
            gateway=url_of(options.gateway.listen[0], is_tls=_is_tls(options)),
            service=service_url(options),
            token=options.generated_token,
            rules=options.service.rules or "",
            is_temporary=options.gateway.run_dir is None,
        )
        print(shown, flush=True)
    else:
        message = "\n  ".join([title, *_lines(options, directory, report)])
        LOG.info("%s", message, extra={FIELDS: fields})


def url_of(address: Address, *, is_tls: bool) -> str:
    """The URL of *address* for a client on this machine."""
    if address.is_unix:
        return str(address)
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - it is only shown
    host = everywhere.get(
        address.host, f"[{address.host}]" if ":" in address.host else address.host
    )
    return f"{'https' if is_tls else 'http'}://{host}:{address.port}"


def service_url(options: UpOptions) -> str:
    """The URL of the service, for a browser if possible; empty without HTTP."""
    is_tls = options.service.http_tls_cert is not None
    first = min(options.service.http, key=lambda address: address.is_unix, default=None)
    return "" if first is None else url_of(first, is_tls=is_tls)


def _is_tls(options: UpOptions) -> bool:
    return options.gateway.listen_tls_cert is not None


def _fields(options: UpOptions, directory: RunDirectory, report: Report) -> dict[str, object]:
    is_tls = _is_tls(options)
    return {
        "event": "up",
        "version": __version__,
        "gateway": [url_of(one, is_tls=is_tls) for one in options.gateway.listen],
        "service": service_url(options) or None,
        "upstreams": [str(one) for one in options.gateway.upstream],
        "rules": shown_store(options.service.rules or ""),
        "revision": report.revision,
        "rule_count": report.rules,
        "store": shown_store(options.service.store),
        "admin_token_file": str(directory.place(TOKEN_FILE)) if options.generated_token else None,
        "run_dir": str(directory.path),
    }


def _lines(options: UpOptions, directory: RunDirectory, report: Report) -> list[str]:
    is_tls = _is_tls(options)
    lines = [f"gateway: {url_of(one, is_tls=is_tls)}" for one in options.gateway.listen]
    lines += [f"upstream: {one}" for one in options.gateway.upstream]
    if options.service.http:
        token = options.generated_token if options.is_terminal else None
        lines.append(f"service and dashboard: {dashboard_link(service_url(options), token)}")
    lines += counting(options.service, report)
    lines += [f"not ready: {reason}" for reason in report.not_ready]
    if options.generated_token and options.is_terminal:
        lines.append(f"admin token, generated for this run: {options.generated_token}")
    elif options.generated_token:
        lines.append(f"admin token, generated for this run: in {directory.place(TOKEN_FILE)}")
    lines.append(f"files: {directory.path}")
    return lines


# The CA certificates of this machine.


_KNOWN: Final = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch, Gentoo
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, Red Hat
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # Alpine, macOS
)


def system_authorities() -> str | None:
    """The file of the system's CA certificates, if there is one; SSL_CERT_FILE overrides it."""
    found = ssl.get_default_verify_paths().cafile
    return next((path for path in (found, *_KNOWN) if path and Path(path).is_file()), None)


def places_for(
    settings: GatewaySettings, directory: RunDirectory, sockets: Sequence[str]
) -> Places:
    """The places for a gateway in *directory* with a service at *sockets*.

    Raises `GatewayError` if an upstream uses TLS and there are no CA certificates.
    """
    known = {"directory": str(directory.path), "admin": admin_place(settings, directory)}
    is_needed = any(one.is_tls for one in settings.upstream) and settings.upstream_ca is None
    authorities = system_authorities()
    if authorities is not None:
        return Places(**known, grpc=tuple(sockets), system_ca=authorities)
    if is_needed:
        raise GatewayError(
            "an upstream is https, and this machine has no file of CA certificates; "
            "pass one with --upstream-ca FILE"
        )
    return Places(**known, grpc=tuple(sockets))


_POLL_S: Final = 2.0
"""Seconds between two checks of the certificate files."""

_EXTRA_S: Final = 5.0
"""Seconds that a program may take to end after its drain."""

_SERVICE_TIMEOUT_S: Final = 10.0
"""Seconds that Envoy may take to reach the service before the start is reported anyway."""

_UPSTREAM: Final = "upstream.sock"


def run(options: UpOptions) -> int:
    """Run until a signal and return the exit status. Raises `HeadgateError` if it cannot start."""
    ENVOY_LOG.setLevel(LEVELS[options.gateway.envoy_log_level])
    with ExitStack() as held:
        gateway, program = preflight(options.gateway, held)
        directory = held.enter_context(run_directory(gateway.run_dir))
        options = _placed(replace(options, gateway=gateway), directory)
        sockets = listen_as(options.service)
        held.callback(sockets.remove)
        held.callback(sockets.close)
        http = tuple(one.at for one in sockets.http)
        options = replace(options, service=replace(options.service, http=http))
        workers = held.enter_context(closing(Workers(options.service, sockets, EnvoyWorker)))
        return asyncio.run(_serve(Up(options, program, directory, workers)))


async def _serve(up: Up) -> int:
    status = await up.serve()
    report("stopped" if status == DONE else "stopped, not cleanly", event="stopped")
    return status


def _placed(options: UpOptions, directory: RunDirectory) -> UpOptions:
    """*options* with the files in *directory*: sockets for Envoy, the token, and for the demo the
    rules and the upstream."""
    gateway, service = options.gateway, behind_envoy(options.service, directory)
    if options.generated_token is not None:
        directory.write(TOKEN_FILE, options.generated_token.encode() + b"\n")
    if options.is_demo:
        path = directory.place(RULES_FILE)
        if not path.exists():
            directory.write(RULES_FILE, demo_rules())
        service = replace(service, rules=str(path))
        upstream = Upstream(path=str(directory.place(_UPSTREAM)))
        gateway = replace(gateway, upstream=(upstream,))
    return replace(options, gateway=gateway, service=service)


class Up(Supervisor):
    """The gateway with Envoy at *program*, its files in *directory*, and *workers*."""

    def __init__(
        self, options: UpOptions, program: str, directory: RunDirectory, workers: Workers
    ) -> None:
        super().__init__(report=report)
        self._options = options
        self._directory = directory
        self._workers = workers
        self._is_reload = False
        self._following = SupervisedTask(self._follow, name="following the rules", log=LOG)
        self._counting = SupervisedTask(self._count, name="reading Envoy's counters", log=LOG)
        place = options.service.rules or ""
        self._rules = ActivePolicy(
            open_source(place, read_only=True),
            keep=kept_policy(options.service),
            may_arrive_later=is_etcd(place),
        )
        settings = options.gateway
        self._envoy = Envoy(program, settings, directory)
        self._envoy_child = Child(self._envoy, report=report)
        self.children = (*workers.children, self._envoy_child)
        places = places_for(settings, directory, envoy_sockets(options.service))
        self._configuration = Configuration(settings, places, directory, self._envoy)

    async def start(self, stack: AsyncExitStack) -> None:
        options = self._options
        if options.is_demo:
            upstream = DemoUpstream(str(self._directory.place(_UPSTREAM)))
            stack.push_async_callback(upstream.aclose)
            await upstream.start()
        stack.push_async_callback(self._rules.aclose)
        policy = await self._rules.start()
        self._configuration.begin(policy)
        started = await self._workers.start()
        await self._envoy_child.start()
        if not await self._envoy.reaches_service(within=_SERVICE_TIMEOUT_S):
            message = "Envoy does not reach the service yet; until then on_store_failure applies"
            report(message, level=logging.WARNING)
        stack.push_async_callback(self._following.aclose)
        self._following.start()
        stack.push_async_callback(self._counting.aclose)
        self._counting.start()
        pids = {
            "envoy_pid": self._envoy_child.pid,
            "worker_pids": [child.pid for child in self._workers.children],
        }
        report_start(options, self._directory, started, pids=pids)
        for message in await unreachable_warnings(options.gateway.upstream):
            report(message, level=logging.WARNING, event="upstream")

    def reload(self) -> None:
        report("SIGHUP: reading the rules and the certificates again")
        self._rules.reread()
        self._workers.reload()
        self._is_reload = True
        self._rules.changed.set()

    async def _follow(self) -> None:
        """Update Envoy when the policy or the certificates change."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await self._rules.changed.wait()
            is_renewed = self._configuration.have_certificates_changed() or self._is_reload
            self._is_reload = False
            if is_renewed and not self._configuration.reload_certificates():
                is_renewed = False
            is_due = is_renewed or self._configuration.is_behind
            if not is_due and not self._rules.changed.is_set():
                continue
            self._rules.changed.clear()
            if self._rules.policy is not None:
                await self._configuration.renew(self._rules.policy)

    async def _count(self) -> None:
        """Report to the workers what Envoy has decided by itself."""
        totals = EnvoyTotals()
        while True:
            with suppress(AdminError):  # Envoy is started again
                totals.add(local_counts(await self._envoy.admin.stats(LOCAL_COUNTERS)))
                self._workers.report_envoy(totals.totals)
            await asyncio.sleep(REPORT_S)

    async def drain(self) -> bool:
        await self._following.aclose()
        await self._counting.aclose()
        await self._envoy_child.disable_restart()
        is_done = await self._is_drained()
        await self._envoy_child.stop(within=_EXTRA_S)
        self._envoy.clear()
        is_clean = await self._workers.drain()
        return is_done and is_clean

    async def _is_drained(self) -> bool:
        """Drain Envoy; if requests are cut off, report it and return False."""
        if self._envoy_child.pid is None or not self._envoy.log.is_ready or self.is_forced:
            return not self.is_forced  # an Envoy that is not ready has no requests
        grace = self._options.service.drain
        message = f"requests were cut off: they took longer than {grace:g} s"
        try:
            if await drain(self._envoy.admin, linger=self._options.service.linger, grace=grace):
                return True
        except AdminError as error:
            message = f"requests may have been cut off: {error}"
        if not self.is_forced:
            report(message, level=logging.WARNING)
        return False


def check(options: UpOptions) -> tuple[str, ...]:
    """Check *options* without running, and return notes. Raises `PolicyError` or `GatewayError`.

    Rules in etcd are not read: Envoy's configuration then has none.
    """
    program = envoy_program(options.gateway)
    check_certificates(options.gateway)
    with tempfile.TemporaryDirectory(prefix="headgate-check-") as name:
        directory = RunDirectory(Path(name))
        options = _placed(options, directory)
        gateway, rules = options.gateway, options.service.rules or ""
        policy = Policy() if is_etcd(rules) else PolicyFiles(rules).load().policy
        made = documents(
            policy, gateway, places_for(gateway, directory, envoy_sockets(options.service))
        )
        validate(program, made, directory)
    message = [
        f"rule {one.rule}: decided {one.decide}: {one.why}" for one in made.decided if one.why
    ]
    return (*message, *made.warnings, *warnings(options.gateway), "Envoy accepts the configuration")
