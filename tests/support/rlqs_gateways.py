"""The quota service on a clock of the test's own, and gateways on streams of its own."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from headgate.policy.loader import read_policy
from headgate.rule_engine import AsyncRuleEngine
from headgate.service.core import Core
from headgate.service.rlqs import QuotaCalls, RlqsOptions
from headgate.service.rlqs.messages import REPORTS, RESPONSE
from headgate.service.rlqs.rates import TokenBucket
from headgate.testing import ManualClock
from headgate.units import SECOND
from tests.support.virtual_gateways import Gateway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from headgate.service.rlqs.shared import LedgerStore
    from headgate.stores import Store

PER_USER = """
version: 1
rules:
  - id: per-user
    match: {attributes: {user: true}}
    key_by: "attribute:user"
    limit: 100/s
"""


def core_of(text: str, clock: ManualClock, store: Store | None = None) -> Core:
    """A core with the policy in *text*, all on *clock*; *store* has that already."""
    policy = read_policy(text)
    engine = AsyncRuleEngine(policy, store=store) if store else AsyncRuleEngine(policy, clock=clock)
    return Core(rules=engine, clock=clock, secret=b"secret")


class Service:
    """The service. It is past its start unless *is_fresh*; `pass_time` moves the clock."""

    def __init__(
        self,
        text: str = PER_USER,
        *,
        options: RlqsOptions | None = None,
        board: LedgerStore | None = None,
        store: Store | None = None,
        clock: ManualClock | None = None,
        is_fresh: bool = False,
    ) -> None:
        self.clock = clock or ManualClock(1_000_000)
        self.options = options or RlqsOptions()
        self.core = core_of(text, self.clock, store)
        self.calls = QuotaCalls(self.core, self.options, ledgers=board, clock=self.clock)
        if not is_fresh:
            self.clock.advance(self.options.ttl + self.options.delivery)

    async def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance(1)
            await self.calls.tick()
            await breathe()

    def replace(self, text: str) -> None:
        self.core.rules.replace(read_policy(text))


class Serving(Protocol):
    """Whoever has the handler of the streams."""

    calls: QuotaCalls


class Line:
    """A gateway's stream: `report` sends, `told` is what came back last for each bucket."""

    def __init__(self, service: Serving) -> None:
        self.told: dict[tuple[tuple[str, str], ...], Any] = {}
        self.messages: list[Any] = []
        self.error: BaseException | None = None
        self._sent: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._replies = service.calls.stream_usage(self._requests())
        self.listening = asyncio.get_running_loop().create_task(self._listen())

    async def report(self, *usages: Any, domain: str = "edge", raw: bytes | None = None) -> None:
        """Report *usages*, each (bucket, seconds, allowed, denied), and wait for what comes."""
        message = REPORTS(domain=domain)
        for bucket, seconds, allowed, denied in usages:
            one = message.bucket_quota_usages.add(
                num_requests_allowed=allowed, num_requests_denied=denied
            )
            one.bucket_id.bucket.update(bucket)
            one.time_elapsed.seconds = seconds
        self._sent.put_nowait(message.SerializeToString() if raw is None else raw)
        await breathe()

    async def hang_up(self) -> None:
        """Send no more."""
        self._sent.put_nowait(None)
        await breathe()

    async def vanish(self) -> None:
        """The caller is gone: what carries the stream closes it."""
        self.listening.cancel()
        await asyncio.wait([self.listening])
        await breathe()

    def rate(self, **bucket: str) -> float | None:
        """The rate that *bucket* was given last; 0 for none, None if nothing was said."""
        action = self.told.get(tuple(sorted(bucket.items())))
        if action is None or not action.HasField("quota_assignment_action"):
            return None
        strategy = action.quota_assignment_action.rate_limit_strategy
        if strategy.WhichOneof("strategy") == "blanket_rule":
            return float("inf") if strategy.blanket_rule == 0 else 0.0
        given = strategy.token_bucket
        return float(given.tokens_per_fill.value / given.fill_interval.seconds)

    async def _requests(self) -> AsyncIterator[bytes]:
        while (message := await self._sent.get()) is not None:
            yield message

    async def _listen(self) -> None:
        try:
            async for message in self._replies:
                read = RESPONSE.FromString(message)
                self.messages.append(read)
                for action in read.bucket_action:
                    self.told[tuple(sorted(action.bucket_id.bucket.items()))] = action
        except Exception as error:  # noqa: BLE001 (the test looks at it)
            self.error = error
        finally:
            await self._replies.aclose()  # type: ignore[attr-defined]  # it is a generator


class Envoy:
    """A gateway with one bucket that does what it is told, and reports every five seconds."""

    def __init__(self, service: Service, **bucket: str) -> None:
        self.line = Line(service)
        self._service = service
        self._bucket = bucket
        self._heard = 0
        self._gateway = Gateway("envoy", 0, Random(0), filled_ns=service.clock())
        self._reported_ns: int | None = None
        self.allowed = 0

    @property
    def rate(self) -> float:
        return self.line.rate(**self._bucket) or 0.0

    async def ask(self, requests: int) -> None:
        """So many requests come now; a report goes out if it is time for one."""
        now_ns = self._service.clock()
        self._listen(now_ns)
        self.allowed += sum(self._gateway.asked(now_ns) for _ in range(requests))
        since = None if self._reported_ns is None else now_ns - self._reported_ns
        if since is None or since >= 5 * SECOND:
            usage = (self._bucket, 0 if since is None else 5, *self._counted())
            self._reported_ns = now_ns
            await self.line.report(usage)

    def _counted(self) -> tuple[int, int]:
        counted = self._gateway.allowed, self._gateway.denied
        self._gateway.allowed = self._gateway.denied = 0
        return counted

    def _listen(self, now_ns: int) -> None:
        for message in self.line.messages[self._heard :]:
            for action in message.bucket_action:
                assigned = action.quota_assignment_action
                given = assigned.rate_limit_strategy.token_bucket
                token_bucket = None
                if given.max_tokens:
                    seconds = given.fill_interval.seconds
                    token_bucket = TokenBucket(
                        given.tokens_per_fill.value, seconds, given.max_tokens
                    )
                ttl_ns = assigned.assignment_time_to_live.seconds * SECOND
                self._gateway.told(token_bucket, ttl_ns, now_ns)
        self._heard = len(self.line.messages)


async def breathe() -> None:
    """Let everybody have a turn."""
    for _ in range(50):
        await asyncio.sleep(0)
