"""The objects of a worker, assembled from the settings.

source -> watcher ----> engine <---- store
envoy config --> core <-- readiness
core --> HTTP app (with the admin API), RLS, RLQS
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from headgate.control.files import PolicyFiles
from headgate.control.watcher import PolicyWatcher
from headgate.errors import StoreURLError
from headgate.overload import AsyncPressureControl
from headgate.policy.model import Policy
from headgate.policy.problems import PolicyError
from headgate.responses import ResponseOptions
from headgate.rule_engine import AsyncRuleEngine
from headgate.service.core import Core, key_hasher, key_shower
from headgate.service.live import Fleet, Live, ServiceMeasures
from headgate.service.live.fleet import node_name
from headgate.service.readiness import Readiness
from headgate.service.sources import envoy_parser, is_etcd, kept_policy, open_source, shown_store
from headgate.service.tls import TlsFiles
from headgate.stores.factory import open_store
from headgate.stores.layers.replication import ReplicatedStore

if TYPE_CHECKING:
    import ssl

    from _typeshed import DataclassInstance

    from headgate.config.service import Settings
    from headgate.config.values import RegionPeer
    from headgate.control.source import PolicySource
    from headgate.policy.compiled import CompiledPolicy
    from headgate.policy.envoy_config.config import EnvoyConfig
    from headgate.service.http import HttpOptions
    from headgate.service.live import SharedSnapshots
    from headgate.service.rlqs.options import RlqsOptions
    from headgate.service.rls.requests import RlsOptions
    from headgate.stores.base import Store


# Options of each part of the service, from the settings.


Options = TypeVar("Options", bound="DataclassInstance")


def options_of(kind: type[Options], settings: Settings, prefix: str = "", **others: Any) -> Options:
    """Options of *kind*: the *settings* with the same names after *prefix*, and *others*."""
    names = [field.name for field in fields(kind) if hasattr(settings, prefix + field.name)]
    return kind(**{name: getattr(settings, prefix + name) for name in names}, **others)


def http_options(settings: Settings) -> HttpOptions:
    """Trusted gateways and limits of the HTTP API."""
    from headgate.service.http import HttpOptions

    listeners = [one for one in settings.http if not one.is_unix and one.is_loopback]
    return options_of(
        HttpOptions,
        settings,
        largest_body=settings.max_body,
        loopback=tuple([one.host for one in listeners]),
    )


def rls_options(settings: Settings) -> RlsOptions:
    """Options of Envoy's rate limit service (RLS)."""
    from headgate.service.rls.requests import RlsOptions

    return options_of(RlsOptions, settings, "rls_", most_bytes=settings.max_message)


def rlqs_options(settings: Settings) -> RlqsOptions:
    """Options of the quota service (RLQS)."""
    from headgate.service.rlqs.options import RlqsOptions

    return options_of(RlqsOptions, settings, "rlqs_", most_bytes=settings.max_message)


def tls_context(settings: Settings, listener: Literal["http", "grpc"]) -> ssl.SSLContext | None:
    """The TLS context of a listener, if it has one. Raises `OptionError` for unusable files."""
    names = ("cert", "key", "client_ca")
    certificate, key, ca = (getattr(settings, f"{listener}_tls_{name}") for name in names)
    if certificate is None:
        return None
    files = TlsFiles(certificate=certificate, key=key, client_ca=ca)
    return files.context("h2" if listener == "grpc" else "http/1.1")


# Pressure reported by a fleet of apps.
#
# The service does not see requests end, so it measures no pressure itself. It scales its limits
# like the apps that share its store and its rules.


_NONE: Final = Fraction(1)


class FleetPressure:
    """Scales the limits of *rules* like the fleet's, while the policy has `pressure`."""

    def __init__(self, rules: AsyncRuleEngine, *, namespace: str) -> None:
        self._rules = rules
        self._namespace = namespace
        self._control: AsyncPressureControl | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def factor(self) -> Fraction:
        """The current factor of limits."""
        return self._rules.in_force.scale.factor

    def start(self) -> None:
        """Follow the fleet from now on; call it in the event loop."""
        self._loop = asyncio.get_running_loop()
        self._rules.in_force.subscribe(self._follow)

    async def aclose(self) -> None:
        """Stop following."""
        if self._control is not None:
            await self._control.aclose()

    def _follow(self, engine: CompiledPolicy) -> None:
        """Adopt a new policy in the event loop: a watcher replaces policies in its own thread."""
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        if is_here:
            self._adopt(engine)
        elif self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._adopt, engine)

    def _adopt(self, engine: CompiledPolicy) -> None:
        pressure, scale = engine.policy.pressure, self._rules.in_force.scale
        if pressure is None:
            scale.factor = _NONE
            return
        if self._control is None:
            self._control = AsyncPressureControl(
                pressure, store=self._rules.engine.store, namespace=self._namespace
            )
            self._control.on_change(self._changed)
            self._control.start()
        else:
            self._control.replace(pressure)
        scale.factor = self._control.factor

    def _changed(self, factor: Fraction) -> None:
        in_force = self._rules.in_force
        if in_force.policy.pressure is not None:
            in_force.scale.factor = factor


# The store of a service: one store, or the store of its region with replication to the others.


PEER_TIMEOUT: Final = "timeout=2"
"""The timeout for stores of other regions, which are far away; no request waits for them."""

_TIMEOUT: Final = re.compile(r"[?&]timeout=")


def store_of(settings: Settings) -> str | Store:
    """The store of the counters, without connecting.

    Usage is replicated for rules with `across_regions`, so for none at first.
    """
    if settings.region is None or not settings.region_peers:
        return settings.store
    peers = {peer.name: _opened(peer) for peer in settings.region_peers}
    local = open_store(settings.store, None)
    return ReplicatedStore(local, region=settings.region, peers=peers, groups=())


def _opened(peer: RegionPeer) -> Store:
    try:
        return open_store(_with_timeout(peer.store), None)
    except StoreURLError as error:
        raise StoreURLError(f"the store of the region {peer.name}: {error}") from error


def _with_timeout(url: str) -> str:
    if _TIMEOUT.search(url):
        return url
    return f"{url}{'&' if '?' in url else '?'}{PEER_TIMEOUT}"


@dataclass(frozen=True, slots=True)
class Report:
    """The state of a worker that serves: *revision* and number of *rules*, if there is a policy."""

    revision: int | None
    rules: int
    domains: int
    not_ready: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class ServiceContainer:
    """The objects of a worker, apart from its servers. `start` before those, `aclose` after."""

    settings: Settings
    core: Core
    readiness: Readiness
    pressure: FleetPressure
    source: PolicySource | None
    watcher: PolicyWatcher | None
    envoy: PolicyWatcher | None
    live: Live
    measures: ServiceMeasures

    async def start(self) -> None:
        """Put rules in force, or raise `PolicyError`; rules from etcd may come later."""
        for watcher in (self.watcher, self.envoy):
            if watcher is None:
                continue
            await asyncio.to_thread(watcher.start)
            state = watcher.state
            may_come_later = watcher is self.watcher and is_etcd(self.settings.rules or "")
            if state.revision is None and state.problems and not may_come_later:
                raise PolicyError(state.problems)
        self.pressure.start()
        await self.readiness.start()
        self.live.start()

    def reread(self) -> None:
        """Read all sources again, now (SIGHUP)."""
        for watcher in (self.watcher, self.envoy):
            if watcher is not None:
                watcher.check_soon()

    def report(self) -> Report:
        """The policy in force and the readiness."""
        policy = self.core.rules.in_force.policy
        config = self.core.envoy
        return Report(
            None if self.watcher is None else self.watcher.state.revision,
            len(policy.rules),
            0 if config is None else len(config.domains),
            self.core.not_ready(),
        )

    async def aclose(self) -> None:
        """Close everything, the store last."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.core.rules.aclose)
            if self.source is not None:
                stack.callback(self.source.close)
            for watcher in (self.watcher, self.envoy):
                if watcher is not None:
                    stack.push_async_callback(asyncio.to_thread, watcher.stop)
            stack.push_async_callback(self.pressure.aclose)
            stack.push_async_callback(self.readiness.aclose)
            stack.push_async_callback(self.live.aclose)


def make_container(
    settings: Settings, *, worker: int = 0, shared_snapshots: SharedSnapshots | None = None
) -> ServiceContainer:
    """Make the container of *worker*, which shares *shared_snapshots* with other workers.

    Nothing is connected or read yet. Raises `HeadgateError` for invalid settings.
    """
    rules = AsyncRuleEngine(
        Policy(()), store=store_of(settings), salt=settings.salt, namespace=settings.namespace
    )
    core = Core(
        rules=rules,
        clock=time.time_ns,
        secret=settings.secret,
        answers=options_of(ResponseOptions, settings, "responses_"),
        namespace=settings.namespace,
        hash_key=key_hasher(settings),
        show_key=key_shower(settings),
    )
    source = watcher = envoy = None
    log = _watcher_log(worker)
    if settings.rules is not None:
        source = open_source(settings.rules, read_only=not settings.has_admin)
        watcher = PolicyWatcher(
            source,
            rules.replace,
            keep=kept_policy(settings),
            log=log,
            on_change=lambda _: measures.update_digest(),
        )
    if settings.envoy_config is not None:
        envoy = PolicyWatcher(
            PolicyFiles(settings.envoy_config),
            lambda config: _put_in_force(core, config),
            parse=envoy_parser(settings),
            what="envoy_config",
            log=log,
        )
    measures = ServiceMeasures(rules, began_ns=time.time_ns(), watcher=watcher, envoy=envoy)
    readiness = Readiness(
        rules.engine.store,
        namespace=settings.namespace,
        missing_rules=lambda: _missing_rules(watcher),
    )
    core.not_ready, core.trouble = readiness.reasons, readiness.trouble
    return ServiceContainer(
        settings=settings,
        core=core,
        readiness=readiness,
        pressure=FleetPressure(rules, namespace=settings.namespace),
        source=source,
        watcher=watcher,
        envoy=envoy,
        live=Live(
            core,
            watcher,
            store=shown_store(settings.store),
            worker=worker,
            shared_snapshots=shared_snapshots,
            store_trouble=readiness.store_trouble,
            fleet=Fleet(
                rules.engine.store,
                namespace=settings.namespace,
                node=node_name(str(next(iter(settings.http), ""))),
                digest=measures.digest,
            ),
        ),
        measures=measures,
    )


def _watcher_log(worker: int) -> logging.Logger:
    """The log of changes of the rules, which every worker sees and the first one reports. Another
    one logs only that its watcher has failed."""
    log = logging.getLogger("headgate.control")
    if worker > 0:
        log = log.getChild("worker")
        log.setLevel(logging.CRITICAL)
    return log


def _put_in_force(core: Core, config: EnvoyConfig) -> None:
    core.envoy = config


def _missing_rules(watcher: PolicyWatcher | None) -> str | None:
    return None if watcher is None else "; ".join(watcher.state.not_ready) or None
