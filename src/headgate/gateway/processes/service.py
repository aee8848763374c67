"""The decision service, as a program that is run."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING, Final

from headgate.gateway.processes.logs import ServiceVoice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.gateway.processes.options import ServiceTerms
    from headgate.gateway.processes.run_directory import RunDirectory

CONFIG: Final = "service.json"
SOCKET: Final = "grpc.sock"
_HUNG: Final = 5.0
_PATIENCE: Final = 2.0
"""How long a worker may take for one answer."""

_LATE: Final = 20.0
"""How long one of several workers may be silent: its supervisor may be about to replace it."""

_HELLO: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""How a connection of HTTP/2 begins: the server answers with its settings."""


class Service:
    """A `Program`: the service with the rules at *rules*, which Envoy asks over sockets in
    *directory*."""

    name: Final = "the service"
    hung: Final = _HUNG

    def __init__(self, terms: ServiceTerms, rules: str, directory: RunDirectory) -> None:
        self._terms = terms
        self._directory = directory
        self._config = config_of(terms, rules, directory)
        self.sockets = sockets_of(terms, directory)
        self.voice = ServiceVoice()
        self._answered: dict[str, float] = {}

    def begin(self) -> None:
        """Write its settings. They are for their owner only, and so are the secrets beside them."""
        self.voice.begin()
        self._answered.clear()
        for name, secret in self._terms.secrets.items():
            # One end of a line is not of the secret, whichever of the two it is written with.
            self._directory.write(f"{name}.secret", secret + b"\r\n")
        self._directory.write(CONFIG, json.dumps(self._config, indent=1).encode())

    def call(self) -> Sequence[str]:
        serve = ("-m", "headgate.cli", "serve")
        return [sys.executable, "-P", *serve, "--config", str(self._directory.place(CONFIG))]

    def environment(self) -> Mapping[str, str]:
        """Ours, without settings: all that count are in its file. etcd's password has no other
        place."""
        kept = "HEADGATE_ETCD_PASSWORD"
        return {
            key: value
            for key, value in os.environ.items()
            if key == kept or not key.startswith("HEADGATE_")
        }

    def hear(self, line: str) -> None:
        self.voice.hear(line)

    def last_words(self) -> str:
        return self.voice.last

    async def serves(self) -> bool:
        return self.voice.started is not None

    async def answers(self) -> bool:
        """Whether it answers where Envoy asks: a worker now, and each of them lately."""
        answered = await asyncio.gather(*map(_answers_at, self.sockets))
        now = asyncio.get_running_loop().time()
        for path, is_there in zip(self.sockets, answered, strict=True):
            if is_there or path not in self._answered:
                self._answered[path] = now
        is_late = any(now - last > _LATE for last in self._answered.values())
        return any(answered) and not is_late


def sockets_of(terms: ServiceTerms, directory: RunDirectory) -> tuple[str, ...]:
    """Where Envoy asks: a socket for each worker."""
    first = str(directory.place(SOCKET))
    return (first, *(f"{first}.{number}" for number in range(1, terms.workers)))


def config_of(terms: ServiceTerms, rules: str, directory: RunDirectory) -> dict[str, object]:
    """The settings of the service as its file has them."""
    config = dict(terms.config)
    config["rules"] = rules
    config["grpc"] = [*map(str, terms.grpc), f"unix:{directory.place(SOCKET)}"]
    config["log_format"] = "json"
    if config.get("log_level") != "debug":  # it tells of its start; we tell what is asked for
        config["log_level"] = "info"
    if terms.workers > 1:
        config["grpc_ports"] = "each"
    for name in terms.secrets:
        config[f"{name}_file"] = str(directory.place(f"{name}.secret"))
    return config


async def _answers_at(path: str) -> bool:
    try:
        async with asyncio.timeout(_PATIENCE):
            return await _greeted(path)
    except OSError:  # a timeout is one of them
        return False


async def _greeted(path: str) -> bool:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(_HELLO)
        return bool(await reader.read(1))
    finally:
        writer.close()
