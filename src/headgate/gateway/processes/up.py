"""The whole gateway, from its terms to its exit status.

checked -> rules read -> files written -> the service serves -> Envoy serves -> told
        ... rules change -> files replaced ...
SIGTERM -> Envoy drains -> Envoy ends -> the service ends -> nothing is left
"""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
import tempfile
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate import __version__
from headgate.config.gateway import Upstream
from headgate.control.files import PolicyFiles
from headgate.gateway.demo import DemoUpstream, dashboard_link, demo_rules, introduction
from headgate.gateway.envoy.documents import documents
from headgate.gateway.envoy.values import Places
from headgate.gateway.processes.certificates import check_certificates, doubts
from headgate.gateway.processes.child import Child
from headgate.gateway.processes.configuration import Configuration, RulesInForce
from headgate.gateway.processes.envoy import (
    AdminError,
    Envoy,
    admin_place,
    drain,
    envoy_program,
    validate,
)
from headgate.gateway.processes.logs import ENVOY_LOG, FIELDS, LEVELS, LOG, GatewayError, tell
from headgate.gateway.processes.preflight import preflight, unreachable
from headgate.gateway.processes.run_directory import KEPT, RunDirectory, run_directory
from headgate.gateway.processes.service import Service, sockets_of
from headgate.policy.loader import read_policy
from headgate.policy.model import Policy
from headgate.runtime.supervised_task import SupervisedTask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.config import Address
    from headgate.config.gateway import GatewaySettings
    from headgate.gateway.processes.options import Terms


# Where everything is, told once it is there.


TOKEN_FILE: Final = "admin_token.secret"  # noqa: S105 - the name of a file


def tell_start(
    terms: Terms, directory: RunDirectory, started: Mapping[str, Any], *, pids: Mapping[str, object]
) -> None:
    """Say what listens where; *started* is what the service has said of itself."""
    fields = {**_fields(terms, directory, started), **pids}
    title = f"headgate {__version__} is up"
    if terms.is_json:
        LOG.info(title, extra={FIELDS: fields})
    elif terms.is_demo:
        shown = introduction(
            gateway=url_of(terms.gateway.listen[0], is_tls=_is_tls(terms)),
            service=service_url(terms),
            token=terms.made_token,
            rules=terms.rules or "",
        )
        print(shown, flush=True)
    else:
        told = "\n  ".join([title, *_lines(terms, directory, started)])
        LOG.info("%s", told, extra={FIELDS: fields})


def url_of(address: Address, *, is_tls: bool) -> str:
    """Where a client on this machine finds *address*."""
    if address.is_unix:
        return str(address)
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - it is only shown
    host = everywhere.get(
        address.host, f"[{address.host}]" if ":" in address.host else address.host
    )
    return f"{'https' if is_tls else 'http'}://{host}:{address.port}"


def service_url(terms: Terms) -> str:
    """Where the service is, for a browser if it can be; "" if it has no HTTP."""
    is_tls = bool(terms.service.config.get("http_tls_cert"))
    first = min(terms.service.http, key=lambda address: address.is_unix, default=None)
    return "" if first is None else url_of(first, is_tls=is_tls)


def _is_tls(terms: Terms) -> bool:
    return terms.gateway.listen_tls_cert is not None


def _fields(terms: Terms, directory: RunDirectory, started: Mapping[str, Any]) -> dict[str, object]:
    is_tls = _is_tls(terms)
    return {
        "event": "up",
        "version": __version__,
        "gateway": [url_of(one, is_tls=is_tls) for one in terms.gateway.listen],
        "service": service_url(terms) or None,
        "upstreams": [str(one) for one in terms.gateway.upstream],
        "rules": started.get("rules"),
        "revision": started.get("revision"),
        "rule_count": started.get("rule_count"),
        "store": started.get("store"),
        "admin_token_file": str(directory.place(TOKEN_FILE)) if terms.made_token else None,
        "run_dir": str(directory.path),
    }


def _lines(terms: Terms, directory: RunDirectory, started: Mapping[str, Any]) -> list[str]:
    is_tls = _is_tls(terms)
    lines = [f"gateway: {url_of(one, is_tls=is_tls)}" for one in terms.gateway.listen]
    lines += [f"upstream: {one}" for one in terms.gateway.upstream]
    if terms.service.http:
        token = terms.made_token if terms.is_terminal else None
        lines.append(f"service and dashboard: {dashboard_link(service_url(terms), token)}")
    count = started.get("rule_count")
    counted = "1 rule" if count == 1 else f"{count} rules"
    lines.append(f"rules: {started.get('rules')}, revision {started.get('revision')}, {counted}")
    lines.append(f"counters: {started.get('store')}")
    lines += [f"not ready: {reason}" for reason in started.get("not_ready") or ()]
    if terms.made_token and terms.is_terminal:
        lines.append(f"admin token, made for this run: {terms.made_token}")
    elif terms.made_token:
        lines.append(f"admin token, made for this run: in {directory.place(TOKEN_FILE)}")
    lines.append(f"files: {directory.path}")
    return lines


# Where this machine keeps the authorities that it believes.


_KNOWN: Final = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch, Gentoo
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, Red Hat
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # Alpine, macOS
)


def system_authorities() -> str | None:
    """The file with all of them; None if none is found. SSL_CERT_FILE names one, as for OpenSSL."""
    found = ssl.get_default_verify_paths().cafile
    return next((path for path in (found, *_KNOWN) if path and Path(path).is_file()), None)


# Where Envoy finds what it needs on this machine.


def places_of(settings: GatewaySettings, directory: RunDirectory, sockets: Sequence[str]) -> Places:
    """The places for a gateway in *directory* that asks a service at *sockets*.

    Raises `GatewayError` if an upstream is to be believed and nobody says whom to believe.
    """
    known = {"directory": str(directory.path), "admin": admin_place(settings, directory)}
    is_needed = any(one.is_tls for one in settings.upstream) and settings.upstream_ca is None
    authorities = system_authorities()
    if authorities is not None:
        return Places(**known, grpc=tuple(sockets), system_ca=authorities)
    if is_needed:
        raise GatewayError(
            "this machine has no file of the authorities that it believes, and an upstream is "
            "https; name one with --upstream-ca FILE"
        )
    return Places(**known, grpc=tuple(sockets))


DONE: Final = 0
CUT_OFF: Final = 1
"""The exit status if something under way had to be cut off."""

_LOOK: Final = 2.0
"""Seconds between two looks at the certificates."""

_MORE: Final = 5.0
"""How many seconds longer than its own drain a program may take to end."""

_FOUND: Final = 10.0
"""How many seconds Envoy may take to find the service before requests are let in all the same."""

_UPSTREAM: Final = "upstream.sock"


def run(terms: Terms) -> int:
    """Run until told to stop; the exit status. Raises `HeadgateError` if it cannot start."""
    ENVOY_LOG.setLevel(LEVELS[terms.gateway.envoy_log_level])  # whatever we tell ourselves
    with ExitStack() as held:
        terms, program = preflight(terms, held)
        directory = held.enter_context(run_directory(terms.gateway.run_dir))
        return asyncio.run(_serve(_with_demo(terms, directory), program, directory))


async def _serve(terms: Terms, program: str, directory: RunDirectory) -> int:
    return await Up(terms, program, directory).serve()


def _with_demo(terms: Terms, directory: RunDirectory) -> Terms:
    """*terms* with rules and an upstream, if they are for the demo: rules that can be edited."""
    if not terms.is_demo:
        return terms
    path = directory.place(KEPT)
    if not path.exists():
        directory.write(KEPT, demo_rules())
    upstream = Upstream(path=str(directory.place(_UPSTREAM)))
    return replace(terms, rules=str(path), gateway=replace(terms.gateway, upstream=(upstream,)))


class Up:
    """Runs what *terms* ask for, with Envoy's *program* and its files in *directory*."""

    def __init__(self, terms: Terms, program: str, directory: RunDirectory) -> None:
        self._terms = terms
        self._directory = directory
        self._stopping = asyncio.Event()
        self._is_hup = False
        self._is_at_once = False
        self._ending: asyncio.Task[int] | None = None
        self._following = SupervisedTask(self._follow, name="following the rules", log=LOG)
        place = terms.rules or ""
        self._rules = RulesInForce(
            terms.open_source(place), keep=terms.keep, may_come_later=terms.may_come_later
        )
        settings = terms.gateway
        self._envoy = Envoy(program, settings, directory)
        self._service = Service(terms.service, place, directory)
        self._envoy_child, self._service_child = Child(self._envoy), Child(self._service)
        places = places_of(settings, directory, self._service.sockets)
        self._configuration = Configuration(settings, places, directory, self._envoy)

    async def serve(self) -> int:
        """Run all of it; the exit status. Raises `HeadgateError`, and nothing runs then."""
        loop = asyncio.get_running_loop()
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        async with AsyncExitStack() as stack:
            if not await self._is_started(stack):
                tell("stopped before it served", event="stopped")
                return DONE
            await self._stopping.wait()
            self._ending = asyncio.create_task(self._end())
            await asyncio.wait([self._ending])
            status = CUT_OFF if self._is_at_once else self._ending.result()
        tell("stopped" if status == DONE else "stopped, not cleanly", event="stopped")
        return status

    def stop(self) -> None:
        """Drain; at once if it has been told before."""
        if self._stopping.is_set():
            LOG.warning("told to stop again: ending at once")
            self._is_at_once = True
            self._envoy_child.kill_now()
            self._service_child.kill_now()
            if self._ending is not None:
                self._ending.cancel()
        self._stopping.set()

    async def _is_started(self, stack: AsyncExitStack) -> bool:
        """Start everything; False if it was told to stop before that was done."""
        starting = asyncio.create_task(self._start(stack))
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.wait([starting])
            return False
        starting.result()
        return True

    async def _start(self, stack: AsyncExitStack) -> None:
        terms = self._terms
        if terms.is_demo:
            upstream = DemoUpstream(str(self._directory.place(_UPSTREAM)))
            stack.push_async_callback(upstream.aclose)
            await upstream.start()
        stack.push_async_callback(self._rules.aclose)
        await self._rules.start()
        if self._rules.policy is None:
            return
        self._configuration.begin(self._rules.policy)
        stack.push_async_callback(self._service_child.kill)
        await self._service_child.start()
        stack.push_async_callback(self._envoy_child.kill)
        await self._envoy_child.start()
        if not await self._envoy.finds_service(within=_FOUND):
            told = "Envoy does not reach the service yet; until it does, on_store_failure counts"
            tell(told, level=logging.WARNING)
        stack.push_async_callback(self._following.aclose)
        self._following.start()
        self._tell_start()
        for told in await unreachable(terms.gateway.upstream):
            tell(told, level=logging.WARNING, event="upstream")

    def _tell_start(self) -> None:
        pids = {"envoy_pid": self._envoy_child.pid, "service_pid": self._service_child.pid}
        started = self._service.voice.started or {}
        tell_start(self._terms, self._directory, started, pids=pids)

    def _hang_up(self) -> None:
        tell("SIGHUP: looking at the rules and the certificates again")
        self._rules.reread()
        self._service_child.signal(signal.SIGHUP)
        self._is_hup = True
        self._rules.changed.set()

    async def _follow(self) -> None:
        """Have Envoy follow the rules and the certificates."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await self._rules.changed.wait()
            is_renewed = self._configuration.are_certificates_renewed() or self._is_hup
            self._is_hup = False
            if is_renewed and not self._configuration.renew_certificates():
                is_renewed = False
            is_due = is_renewed or self._configuration.is_behind
            if not is_due and not self._rules.changed.is_set():
                continue
            self._rules.changed.clear()
            if self._rules.policy is not None:
                await self._configuration.renew(self._rules.policy)

    async def _end(self) -> int:
        """Drain and end everything; the exit status."""
        linger, grace = self._terms.service.linger, self._terms.service.drain
        await self._following.aclose()
        await self._envoy_child.let_go()
        is_done = await self._is_drained()
        await self._envoy_child.stop(within=_MORE)
        self._envoy.clear()
        is_clean = await self._service_child.stop(within=linger + grace + _MORE)
        return DONE if is_done and is_clean else CUT_OFF

    async def _is_drained(self) -> bool:
        """Whether all requests have come to their end; told if not."""
        if self._envoy_child.pid is None or not self._envoy.voice.serves or self._is_at_once:
            return not self._is_at_once  # nothing is under way in an Envoy that does not serve
        grace = self._terms.service.drain
        told = f"requests were cut off: they took longer than {grace:g} s"
        try:
            if await drain(self._envoy.admin, linger=self._terms.service.linger, grace=grace):
                return True
        except AdminError as error:
            told = f"requests may have been cut off: {error}"
        if not self._is_at_once:
            tell(told, level=logging.WARNING)
        return False


# Whether a gateway would start, and what Envoy makes of its configuration, without running it.


def check(terms: Terms) -> tuple[str, ...]:
    """What there is to say for *terms*. Raises `PolicyError` for rules, else `GatewayError`.

    Rules of etcd are not asked for: then what Envoy would read has none.
    """
    program = envoy_program(terms.gateway)
    check_certificates(terms.gateway)
    policy = _policy(terms)
    with tempfile.TemporaryDirectory(prefix="headgate-check-") as name:
        directory = RunDirectory(Path(name))
        places = places_of(terms.gateway, directory, sockets_of(terms.service, directory))
        made = documents(policy, terms.gateway, places)
        validate(program, made, directory)
    told = [f"rule {one.rule}: decided {one.decide}: {one.why}" for one in made.decided if one.why]
    return (*told, *made.warnings, *doubts(terms.gateway), "Envoy takes the configuration")


def _policy(terms: Terms) -> Policy:
    if terms.is_demo:
        return read_policy(demo_rules())
    if terms.may_come_later or terms.rules is None:
        return Policy()
    return PolicyFiles(terms.rules).load().policy
