"""All that a worker is made of, put together from the settings.

storage -> feed ----> engine <---- store
envoy files --> core <-- readiness
core --> HTTP app (with the admin API), RLS, RLQS
"""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.control.feed import PolicyFeed
from headgate.engine import AsyncRuleEngine
from headgate.rules.model import Policy
from headgate.rules.problems import PolicyError
from headgate.service.channel import Report
from headgate.service.core import Core
from headgate.service.envoy_files import EnvoyFiles
from headgate.service.live import Live, LiveOptions, ServiceMeasures
from headgate.service.part_options import response_options
from headgate.service.pressing import FleetPressure
from headgate.service.readiness import Readiness
from headgate.service.regions import store_of
from headgate.service.shown_keys import key_hasher, key_shower
from headgate.service.sources import is_etcd, kept_policy, open_storage, shown_store

if TYPE_CHECKING:
    from headgate.control.storage import PolicyStorage
    from headgate.rules.envoy import EnvoyConfig
    from headgate.service.live import Boards
    from headgate.service.settings import Settings


@dataclass(slots=True, kw_only=True)
class Parts:
    """What runs in a worker, apart from the servers. `start` before they do, `aclose` after."""

    settings: Settings
    core: Core
    readiness: Readiness
    pressure: FleetPressure
    storage: PolicyStorage | None
    feed: PolicyFeed | None
    envoy: EnvoyFiles | None
    live: Live
    measures: ServiceMeasures

    async def start(self) -> None:
        """Have rules in force, or raise `PolicyError`; rules of etcd may come later."""
        if self.feed is not None:
            await self.feed.start()
            state = self.feed.state
            is_file = not is_etcd(self.settings.rules or "")
            if is_file and state.revision is None and state.problems:
                raise PolicyError(state.problems)
        if self.envoy is not None:
            await self.envoy.start()
        self.pressure.start()
        await self.readiness.start()
        self.live.start()

    async def reread(self) -> None:
        """Look at all files and storages again, now (SIGHUP)."""
        if self.feed is not None:
            self.feed.check_soon()
        if self.envoy is not None:
            await self.envoy.check()

    def report(self) -> Report:
        """What is in force."""
        policy = self.core.engine.in_force.policy
        config = self.core.envoy
        return Report(
            None if self.feed is None else self.feed.state.revision,
            len(policy.rules),
            0 if config is None else len(config.domains),
            self.core.not_ready(),
        )

    async def aclose(self) -> None:
        """End everything, the store last."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.core.engine.aclose)
            if self.storage is not None:
                stack.push_async_callback(self.storage.aclose)
            if self.feed is not None:
                stack.push_async_callback(self.feed.aclose)
            if self.envoy is not None:
                stack.push_async_callback(self.envoy.aclose)
            stack.push_async_callback(self.pressure.aclose)
            stack.push_async_callback(self.readiness.aclose)
            stack.push_async_callback(self.live.aclose)


def make_parts(settings: Settings, *, worker: int = 0, boards: Boards | None = None) -> Parts:
    """The parts of *worker*, which shares *boards* with others if there are any.

    Nothing is asked or read yet. Raises `HeadgateError` for what cannot be.
    """
    engine = AsyncRuleEngine(
        Policy(()), store=store_of(settings), salt=settings.salt, namespace=settings.namespace
    )
    core = Core(
        engine=engine,
        clock=time.time_ns,
        secret=settings.secret,
        answers=response_options(settings),
        namespace=settings.namespace,
        hash_key=key_hasher(settings),
        show_key=key_shower(settings),
    )
    measures = ServiceMeasures(engine, began_ns=time.time_ns())
    storage = feed = envoy = None
    if settings.rules is not None:
        storage = open_storage(settings.rules, read_only=not settings.has_admin)
        feed = PolicyFeed(
            storage, engine.replace, keep=kept_policy(settings), on_change=measures.changed
        )
    if settings.envoy_config is not None:
        envoy = EnvoyFiles(
            settings.envoy_config,
            lambda config: _put_in_force(core, config),
            merge_domains=settings.envoy_merge_domains,
        )
    readiness = Readiness(
        engine.runner.store,
        namespace=settings.namespace,
        missing_rules=lambda: _missing_rules(feed),
    )
    core.not_ready, core.trouble = readiness.reasons, readiness.trouble
    return Parts(
        settings=settings,
        core=core,
        readiness=readiness,
        pressure=FleetPressure(engine, namespace=settings.namespace),
        storage=storage,
        feed=feed,
        envoy=envoy,
        live=Live(
            core,
            feed,
            options=LiveOptions(store=shown_store(settings.store), worker=worker),
            boards=boards,
            store_trouble=readiness.store_trouble,
        ),
        measures=measures,
    )


def _put_in_force(core: Core, config: EnvoyConfig) -> None:
    core.envoy = config


def _missing_rules(feed: PolicyFeed | None) -> str | None:
    return None if feed is None else "; ".join(feed.state.not_ready) or None
