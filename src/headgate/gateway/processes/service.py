"""The decision service as a child process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING, Final

from headgate.gateway.processes.logs import ServiceLog
from headgate.runtime.supervisor import Program, dying_with_parent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.gateway.processes.options import ServiceOptions
    from headgate.gateway.processes.run_directory import RunDirectory

CONFIG: Final = "service.json"
SOCKET: Final = "grpc.sock"
_HANG_TIMEOUT: Final = 5.0
_TIMEOUT_S: Final = 2.0
"""Seconds that a worker may take to respond."""

_SILENCE_S: Final = 20.0
"""Seconds that one of several workers may be silent: its supervisor may be replacing it."""

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""The start of an HTTP/2 connection: the server responds with its settings."""


class Service(Program):
    """A `Program`: the service with the policy at *rules*, for Envoy on sockets in *directory*."""

    name = "the service"
    hang_timeout = _HANG_TIMEOUT
    log: ServiceLog

    def __init__(self, options: ServiceOptions, rules: str, directory: RunDirectory) -> None:
        self._options = options
        self._directory = directory
        self._config = service_config(options, rules, directory)
        self.sockets = service_sockets(options, directory)
        self.log = ServiceLog()
        self._seen_at: dict[str, float] = {}

    def begin(self) -> None:
        """Write its configuration and secrets, readable for their owner only."""
        self.log.begin()
        self._seen_at.clear()
        for name, secret in self._options.secrets.items():
            # The service removes one line end from a secret.
            self._directory.write(f"{name}.secret", secret + b"\r\n")
        self._directory.write(CONFIG, json.dumps(self._config, indent=1).encode())

    def call(self) -> Sequence[str]:
        serve = ("-m", "headgate.cli", "serve")
        config = str(self._directory.place(CONFIG))
        return dying_with_parent([sys.executable, "-P", *serve, "--config", config])

    def environment(self) -> Mapping[str, str]:
        """The variables of this process without settings; etcd's password has no file."""
        kept = "HEADGATE_ETCD_PASSWORD"
        return {
            key: value
            for key, value in os.environ.items()
            if key == kept or not key.startswith("HEADGATE_")
        }

    async def is_ready(self) -> bool:
        return self.log.started is not None

    async def is_healthy(self) -> bool:
        """True if a worker responds now, and each of them responded recently."""
        responses = await asyncio.gather(*map(_is_up, self.sockets))
        now = asyncio.get_running_loop().time()
        for path, is_there in zip(self.sockets, responses, strict=True):
            if is_there or path not in self._seen_at:
                self._seen_at[path] = now
        is_late = any(now - seen > _SILENCE_S for seen in self._seen_at.values())
        return any(responses) and not is_late


def service_sockets(options: ServiceOptions, directory: RunDirectory) -> tuple[str, ...]:
    """The sockets for Envoy, one for each worker."""
    first = str(directory.place(SOCKET))
    return (first, *(f"{first}.{number}" for number in range(1, options.workers)))


def service_config(
    options: ServiceOptions, rules: str, directory: RunDirectory
) -> dict[str, object]:
    """The content of the service's configuration file."""
    config = dict(options.config)
    config["rules"] = rules
    config["grpc"] = [*map(str, options.grpc), f"unix:{directory.place(SOCKET)}"]
    config["log_format"] = "json"
    if config.get("log_level") != "debug":  # the record of its start is needed
        config["log_level"] = "info"
    if options.workers > 1:
        config["grpc_ports"] = "each"
    for name in options.secrets:
        config[f"{name}_file"] = str(directory.place(f"{name}.secret"))
    return config


async def _is_up(path: str) -> bool:
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            return await _handshake(path)
    except OSError:  # includes TimeoutError
        return False


async def _handshake(path: str) -> bool:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(_PREFACE)
        return bool(await reader.read(1))
    finally:
        writer.close()
