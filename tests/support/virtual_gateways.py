"""Gateways as Envoy is one, on virtual time: token buckets, late messages, reports every 5 s."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from headgate.service.rlqs.allocation import GatewayState, allocate
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.service.rlqs.ledger import Ledger
    from headgate.service.rlqs.options import RlqsOptions
    from headgate.service.rlqs.rates import Allowance, TokenBucket

REPORT_NS = 5 * SECOND
MILLION = 1_000_000


@dataclass
class Gateway:
    """What Envoy does with assignments. It denies all while it has none."""

    name: str
    demand: float
    random: Random
    token_bucket: TokenBucket | None = None
    tokens: Fraction = Fraction(0)
    filled_ns: int = 0
    ends_ns: int = 0
    allowed: int = 0
    denied: int = 0
    is_there: bool = True
    arrives_ns: int = 0

    def told(self, token_bucket: TokenBucket | None, ttl_ns: int, now_ns: int) -> None:
        before = self.token_bucket if self.ends_ns > now_ns else None
        self._fill(now_ns)
        # As Envoy compares: the seconds do not count.
        is_same = (
            token_bucket is not None
            and before is not None
            and (token_bucket.tokens, token_bucket.burst) == (before.tokens, before.burst)
        )
        if token_bucket is None:
            self.token_bucket = None
        elif not is_same:
            self.token_bucket, self.tokens = token_bucket, Fraction(token_bucket.burst)
        self.ends_ns = now_ns + ttl_ns

    def asked(self, now_ns: int) -> bool:
        self._fill(now_ns)
        if self.token_bucket is not None and now_ns < self.ends_ns and self.tokens >= 1:
            self.tokens -= 1
            self.allowed += 1
            return True
        self.denied += 1
        return False

    def _fill(self, now_ns: int) -> None:
        if self.token_bucket is not None:
            grown = self.tokens + self.token_bucket.rate * (now_ns - self.filled_ns) / SECOND
            self.tokens = min(grown, Fraction(self.token_bucket.burst))
        self.filled_ns = now_ns


@dataclass
class Meter:
    """Whether never more than `burst + rate * t` was admitted in any time t."""

    rate: Fraction
    burst: int
    used: Fraction = Fraction(0)
    at_ns: int = 0
    most: Fraction = Fraction(0)
    count: int = 0

    def admit(self, now_ns: int) -> None:
        self.used = max(self.used - self.rate * (now_ns - self.at_ns) / SECOND, Fraction(0)) + 1
        self.at_ns = now_ns
        self.most = max(self.most, self.used)
        self.count += 1


@dataclass
class Replica:
    """A replica of the service: the gateways that are connected to it."""

    gateways: dict[str, Gateway] = field(default_factory=dict)
    states: dict[str, GatewayState] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)


class World:
    """One limit, replicas on one ledger, gateways that come and go. *late* is how long messages
    take at most."""

    def __init__(self, allowance: Allowance, options: RlqsOptions, *, replicas: int, seed: int):
        self.allowance = allowance
        self.options = options
        self.random = Random(seed)
        self.ledger: Ledger | None = None
        self.replicas = [Replica() for _ in range(replicas)]
        self.meter = Meter(allowance.rate, allowance.burst)
        self.most_claims = 0
        self.opens_ns = 0
        self.now_ns = 1_000 * SECOND
        self.meter.at_ns = self.now_ns
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self._names = 0
        self._known: set[str] = set()
        self.changes = 0
        for n in range(replicas):
            self.at(self.random.randrange(SECOND), partial(self._tick, n))

    def at(self, after_ns: int, what: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (self.now_ns + after_ns, self._number, what))

    def run(self, seconds: float) -> None:
        end = self.now_ns + round(seconds * SECOND)
        while self._events and self._events[0][0] <= end:
            self.now_ns, _, what = heapq.heappop(self._events)
            what()
        self.now_ns = end

    def join(self, demand: float) -> Gateway:
        self._names += 1
        gateway = Gateway(f"g{self._names}", demand, self.random, filled_ns=self.now_ns)
        self._connect(gateway)
        self._next_request(gateway)
        return gateway

    def vanish(self, gateway: Gateway, *, is_noticed: bool) -> None:
        """It goes on with what it has, but is not heard of any more; then it stops."""
        for replica in self.replicas:
            if replica.gateways.pop(gateway.name, None) is not None:
                del replica.states[gateway.name]
                if is_noticed:
                    replica.gone.add(gateway.name)

    def reconnect(self, gateway: Gateway) -> None:
        """The same gateway on another stream: nobody knows that it is the same."""
        self.vanish(gateway, is_noticed=True)
        self._names += 1
        gateway.name = f"g{self._names}"
        self._connect(gateway)

    def restart(self, n: int) -> None:
        """A replica dies without a word; its gateways go to others, one report later."""
        lost, self.replicas[n] = self.replicas[n], Replica()
        for gateway in lost.gateways.values():
            self._names += 1
            gateway.name = f"g{self._names}"
            self.at(self.random.randrange(REPORT_NS), partial(self._connect, gateway))

    def _connect(self, gateway: Gateway) -> None:
        n = self.random.randrange(len(self.replicas))
        name = gateway.name
        self.replicas[n].gateways[name] = gateway
        self.replicas[n].states[name] = GatewayState(None)
        gateway.allowed = gateway.denied = 0
        self._turn(n)
        self.at(REPORT_NS, lambda: self._report(gateway, name))

    def _report(self, gateway: Gateway, name: str) -> None:
        for n, replica in enumerate(self.replicas):
            if replica.gateways.get(name) is gateway:
                asked = (gateway.allowed + gateway.denied) * MILLION // 5
                before = replica.states[name]
                known = before.demand or 0
                demand = max(asked, (asked + known) // 2)
                gateway.allowed = gateway.denied = 0
                replica.states[name] = GatewayState(demand, 0, before.made_ns)
                self._turn(n)
                self.at(REPORT_NS, lambda: self._report(gateway, name))

    def _tick(self, n: int) -> None:
        self._turn(n)
        self.at(SECOND, lambda: self._tick(n))

    def _turn(self, n: int) -> None:
        replica = self.replicas[n]
        allocation = allocate(
            self.ledger,
            self.now_ns,
            allowance=self.allowance,
            states=replica.states,
            options=self.options,
            gone=replica.gone,
            opens_ns=self.opens_ns,
        )
        replica.gone.clear()
        self.ledger = allocation.ledger
        self.most_claims = max(self.most_claims, len(allocation.ledger.claims))
        for name, token_bucket in allocation.assignments.items():
            claim, gateway = allocation.ledger.claims[name], replica.gateways[name]
            replica.states[name] = GatewayState(replica.states[name].demand, 0, claim.made_ns)
            self._send(gateway, token_bucket)

    def _send(self, gateway: Gateway, token_bucket: TokenBucket | None) -> None:
        self.changes += 1
        # In order, as on one stream.
        late = self.random.randrange(self.options.delivery_ns)
        arrives = gateway.arrives_ns = max(self.now_ns + late, gateway.arrives_ns)
        ttl_ns = self.options.ttl_ns
        if gateway.name not in self._known:  # what it may have of a stream before is replaced
            self._known.add(gateway.name)
            self.at(arrives - self.now_ns, lambda: gateway.told(None, ttl_ns, self.now_ns))
        self.at(arrives - self.now_ns, lambda: gateway.told(token_bucket, ttl_ns, self.now_ns))

    def _next_request(self, gateway: Gateway) -> None:
        if not gateway.is_there:
            return
        rate = max(gateway.demand, 0.01)
        self.at(
            max(1, round(self.random.expovariate(rate) * SECOND)), lambda: self._request(gateway)
        )

    def _request(self, gateway: Gateway) -> None:
        if gateway.asked(self.now_ns):
            self.meter.admit(self.now_ns)
        self._next_request(gateway)
