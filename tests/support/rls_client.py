"""Asking the rate limit service as Envoy would, with the messages of others."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from headgate.errors import StoreError
from headgate.policy.envoy_config.reader import read_envoy_config
from headgate.policy.loader import read_policy
from headgate.responses import ResponseOptions
from headgate.rule_engine import AsyncRuleEngine
from headgate.service.core import Core
from headgate.service.rls import RateLimitCalls, RlsOptions
from headgate.stores.base import Store
from headgate.stores.memory import MemoryStore
from headgate.testing import ManualClock
from tests.support import envoy_messages
from tests.support.async_stores import LoopStore

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headgate.policy.model import Policy
    from headgate.stores.base import Store
    from headgate.stores.operations import Operation

R = TypeVar("R")

OK = envoy_messages.service.RateLimitResponse.OK
OVER = envoy_messages.service.RateLimitResponse.OVER_LIMIT
NOON = 1_000_000_800.0
"""A time at which an hour begins."""


@dataclass
class Desc:
    """A descriptor: entries as `key=value` or as pairs."""

    entries: tuple[str | tuple[str, str], ...]
    hits: int | None = None
    limit: tuple[int, str] | None = None
    negative: bool = False


def desc(
    *entries: str | tuple[str, str],
    hits: int | None = None,
    limit: tuple[int, str] | None = None,
    negative: bool = False,
) -> Desc:
    return Desc(entries, hits, limit, negative)


def request(domain: str, *descriptors: Desc, hits: int = 0) -> bytes:
    """The bytes of a request, as a client writes them."""
    message = envoy_messages.service.RateLimitRequest(domain=domain, hits_addend=hits)
    for one in descriptors:
        written = message.descriptors.add()
        for entry in one.entries:
            key, value = entry.split("=", 1) if isinstance(entry, str) else entry
            written.entries.add(key=key, value=value)
        if one.hits is not None:
            written.hits_addend.value = one.hits
        if one.limit is not None:
            written.limit.requests_per_unit = one.limit[0]
            written.limit.unit = envoy_messages.units.RateLimitUnit.Value(one.limit[1])
        if one.negative:
            written.MergeFromString(b"\x20\x01")  # is_negative_hits, which they do not know yet
    return bytes(message.SerializeToString())


@dataclass
class Asker:
    """A service in this process, on a clock that stands still."""

    policy: str | Policy = "version: 1\nrules: []\n"
    envoy: str | None = None
    options: RlsOptions = field(default_factory=RlsOptions)
    answers: ResponseOptions = field(default_factory=ResponseOptions)
    store: Store | str | None = None
    clock: ManualClock = field(default_factory=lambda: ManualClock(NOON))
    namespace: str = "headgate"

    def __post_init__(self) -> None:
        policy = read_policy(self.policy) if isinstance(self.policy, str) else self.policy
        store = "memory://" if self.store is None else self.store
        clock = self.clock if self.store is None else None
        engine = AsyncRuleEngine(policy, store=store, namespace=self.namespace, clock=clock)
        config = None if self.envoy is None else read_envoy_config([("envoy.yaml", self.envoy)])
        self.core = Core(
            rules=engine,
            clock=self.clock,
            secret=b"secret",
            answers=self.answers,
            envoy=config,
            namespace=self.namespace,
        )
        self.calls = RateLimitCalls(self.core, self.options)

    def ask(self, domain: str, *descriptors: Desc, hits: int = 0) -> Any:
        """The answer, as a client reads it; it has to come at once if the store never waits."""
        answer = self.calls.should_rate_limit(request(domain, *descriptors, hits=hits))
        if self.core.rules.engine.store.waits and not isinstance(answer, bytes):
            answer = asyncio.run(_awaited(answer))
        assert isinstance(answer, bytes)
        return envoy_messages.service.RateLimitResponse.FromString(answer)

    def code(self, domain: str, *descriptors: Desc, hits: int = 0) -> int:
        return int(self.ask(domain, *descriptors, hits=hits).overall_code)

    def left(self, domain: str, *entries: str) -> int:
        """What is left for a descriptor, without consuming any; in a way that teaches nothing."""
        fresh = RateLimitCalls(self.core, RlsOptions(reports="never"))
        answer = fresh.should_rate_limit(request(domain, desc(*entries, hits=0)))
        if not isinstance(answer, bytes):
            answer = asyncio.run(_awaited(answer))
        (status,) = envoy_messages.service.RateLimitResponse.FromString(answer).statuses
        return int(status.limit_remaining)


async def _awaited(answer: Awaitable[bytes]) -> bytes:
    return await answer


class DistantStore(LoopStore):
    """A store in this process that has to be waited for, and may be gone."""

    def __init__(self, clock: ManualClock) -> None:
        self.memory = MemoryStore(clock=clock)
        self.is_gone = False
        self.rounds = 0

    async def arun(self, operation: Operation[R]) -> R:
        self.rounds += 1
        await asyncio.sleep(0)
        if self.is_gone:
            raise StoreError("the store is gone", reason="unreachable")
        return self.memory.run(operation)


def headers_of(answer: Any) -> dict[str, str]:
    return {one.key: one.value for one in answer.response_headers_to_add}


def codes_of(answer: Any) -> list[int]:
    return [one.code for one in answer.statuses]
