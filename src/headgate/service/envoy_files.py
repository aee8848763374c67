"""envoyproxy/ratelimit's own configuration, watched: what is good comes into force as a whole."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from headgate.control.files import PolicyFiles, place_of
from headgate.control.supervised_task import EndlessTask
from headgate.observability import MEASURES
from headgate.policy.envoy_config import read_envoy_config
from headgate.policy.problems import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.control.files import Stamp
    from headgate.policy.envoy_config import EnvoyConfig

LOG: Final = logging.getLogger("headgate.control")
INTERVAL: Final = 0.5


class EnvoyFiles:
    """The files at *path*. *apply* is called in the loop with each configuration that is good.

    Files are read when they have not moved between two looks, *interval* seconds apart. What is not
    good is told once, and the last good configuration stays.
    """

    def __init__(
        self,
        path: str,
        apply: Callable[[EnvoyConfig], None],
        *,
        merge_domains: bool = False,
        interval: float = INTERVAL,
    ) -> None:
        self._files = PolicyFiles(path)
        self._apply = apply
        self._merge_domains = merge_domains
        self._interval = interval
        self._stamp: Stamp | None = None
        self._moving: Stamp | None = None
        self._fingerprint: str | None = None
        self._told: str | None = None
        self._watching = EndlessTask(self._watch, name="headgate-envoy-files")
        self._errors = MEASURES.counter(
            "policy_load_errors", "Policies that could not be put in force.", what="envoy_config"
        )

    @property
    def place(self) -> str:
        return place_of(self._files.path)

    def read(self) -> EnvoyConfig:
        """The configuration as it is now. Raises `PolicyError` with all that is wrong."""
        return self._read()[1]

    async def start(self) -> None:
        """Put it in force, then go on watching. Raises `PolicyError` if it cannot be."""
        self._stamp = await asyncio.to_thread(self._files.stamp)
        self._fingerprint, config = await asyncio.to_thread(self._read)
        self._warn(config)
        self._apply(config)
        self._watching.start()

    async def check(self) -> None:
        """Read the files now, and put them in force if they are new and good."""
        try:
            fingerprint, config = await asyncio.to_thread(self._read)
        except PolicyError as error:
            self._fail(str(error))
            return
        self._told = None
        if fingerprint == self._fingerprint:
            return
        self._fingerprint = fingerprint
        self._warn(config)
        self._apply(config)
        LOG.info("%s: in force; domains: %d", self.place, len(config.domains))

    async def aclose(self) -> None:
        """Watch no longer."""
        await self._watching.aclose()

    def _read(self) -> tuple[str, EnvoyConfig]:
        texts = self._files.read()
        return texts.fingerprint, read_envoy_config(texts.parts, merge_domains=self._merge_domains)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            stamp = await asyncio.to_thread(self._files.stamp)
            if stamp == self._stamp:
                continue
            if stamp != self._moving:
                self._moving = stamp
                continue
            await self.check()
            self._stamp = stamp

    def _fail(self, problems: str) -> None:
        if problems != self._told:
            self._told = problems
            told = "%s: cannot be put in force; what was in force stays\n%s"
            LOG.warning(told, self.place, problems)
            self._errors.add()

    def _warn(self, config: EnvoyConfig) -> None:
        for problem in config.warnings:
            LOG.warning("%s", problem)
