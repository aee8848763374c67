"""Limits as token buckets, the only kind that Envoy has.

A token bucket of capacity C and rate R allows at most C + R * t requests in any time t.

- Token bucket, GCRA, leaky bucket, and a queue that only counts: exactly the same.
- A window of N in W: capacity N, rate N / W. It allows no more than a fixed window, which allows
  2 * N around a boundary. A sliding window allows N; this allows up to 2 * N after an idle time.
  Over longer times both are the same.

A share of a limit is rounded down, and is at least one request.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from headgate.decision import Decision
from headgate.limits import LeakyQueue, PacedLimit, SlidingWindowLog
from headgate.responses import Answer, ResponseOptions, RuleAnswer, response_for
from headgate.responses.bodies import RESOURCE_EXHAUSTED
from headgate.responses.ratelimit_draft11 import POLICY, policy_item
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.gateway.envoy.values import Json
    from headgate.limits import Limit
    from headgate.policy.model import Rule


MOST_TOKENS: Final = 2**32 - 1
_MILLISECONDS: Final = 1_000
_LONGEST_SECONDS: Final = 10**9


@dataclass(frozen=True, slots=True)
class Bucket:
    """A token bucket: *capacity*, and *rate* a second."""

    capacity: int
    rate: Fraction

    def finely(self, *, rounds_up: bool = False) -> Json:
        """The bucket for local limits, with intervals in milliseconds. Its rate is at most 1% too
        low, or with *rounds_up* too high."""
        tokens = min(-(-self.rate.numerator // self.rate.denominator), MOST_TOKENS)
        exact = tokens * _MILLISECONDS / self.rate
        interval = int(exact) if rounds_up else -int(-exact // 1)
        longest = _LONGEST_SECONDS * _MILLISECONDS
        interval = min(max(interval, 50), longest)
        return self._made(tokens, f"{interval // _MILLISECONDS}.{interval % _MILLISECONDS:03}s")

    def times(self, callers: int) -> Json | None:
        """The bucket for local limits of so many *callers* together; None if Envoy has no bucket of
        that size."""
        found = Bucket(self.capacity * callers, self.rate * callers)
        is_too_large = found.capacity > MOST_TOKENS or found.rate > MOST_TOKENS
        return None if is_too_large else found.finely(rounds_up=True)

    def in_whole_seconds(self) -> Json:
        """The bucket for quotas, with intervals in whole seconds. Its rate is not too high."""
        for seconds in range(1, 61):
            tokens = self.rate.numerator * seconds // self.rate.denominator
            if tokens * 100 >= self.rate * seconds * 99:
                return self._made(min(tokens, MOST_TOKENS), f"{seconds}s")
        seconds = min(-(-self.rate.denominator // self.rate.numerator), _LONGEST_SECONDS)
        tokens = max(1, self.rate.numerator * seconds // self.rate.denominator)
        return self._made(tokens, f"{seconds}s")

    def _made(self, tokens: int, interval: str) -> Json:
        most = min(self.capacity, MOST_TOKENS)
        return {"max_tokens": most, "tokens_per_fill": tokens, "fill_interval": interval}


def share_of(limit: Limit, gateways: int, cost: int) -> Bucket:
    """The share of *limit* of one of *gateways*, for requests of *cost* each."""
    capacity = max(limit.quota // gateways, cost, 1)
    return Bucket(capacity, _rate(limit) / gateways)


def backstop_of(limit: Limit) -> Bucket:
    """A bucket that never denies a request that *limit* allows.

    Windows except logs allow twice their quota around a boundary. The capacity has the requests of
    one second more, since the time between two requests differs between Envoy and the service.
    """
    is_loose = not isinstance(limit, PacedLimit | LeakyQueue | SlidingWindowLog)
    rate = _rate(limit)
    slack = max(1, -(-rate.numerator // rate.denominator))
    return Bucket(limit.quota * (2 if is_loose else 1) + slack, rate)


def wait_ns(limit: Limit, cost: int = 1) -> int:
    """The nanoseconds in which *cost* units are refilled."""
    return int(-(-cost * SECOND // _rate(limit)))


def _rate(limit: Limit) -> Fraction:
    if isinstance(limit, PacedLimit | LeakyQueue):
        return limit.per_second
    return Fraction(limit.quota * SECOND, limit.period_ns)


# Responses of limits that Envoy enforces. Only constants are known beforehand: neither remaining
# units nor reset time. `Retry-After` of a local limit is Envoy's own, exact to the second; of a
# quota it is the time in which the whole limit refills one unit. Allowed responses have no headers
# of such limits.


LIMIT_HEADER: Final = "x-headgate-limit"
"""The header with the id of the denying rule, in responses of local limits."""

_WITHOUT_FIGURES: Final = ResponseOptions(x_ratelimit=False, ratelimit=False)
_NO_STORE: Final = ("cache-control", "no-store")


def local_headers(rule: Rule, limits: Mapping[Limit, int]) -> list[Json]:
    """The headers of a denial by a filter of *rule*.

    *limits* have their places in the list of limits. Several limits belong to tiers; then none is
    named, since the filter has the same headers for all.
    """
    found = [_NO_STORE]
    if rule.headers in ("on", "brief"):
        found.append((LIMIT_HEADER, rule.id))
    if rule.headers == "on" and len(limits) == 1:
        ((limit, place),) = limits.items()
        found.append((POLICY, _policy(rule, limit, place)))
    return [_header(name, value) for name, value in found]


def plain_headers() -> list[Json]:
    """The headers of a denial by a filter of several rules."""
    return [_header(*_NO_STORE)]


def quota_denial(rule: Rule, limit: Limit, place: int) -> Json:
    """The response to a request that a quota of *rule* denies, by the limit at *place*."""
    wait = wait_ns(limit, rule.cost.default)
    decision = Decision(
        "", limit, allowed=False, remaining=0, retry_after_ns=wait, reset_after_ns=limit.period_ns
    )
    denied = Answer(allowed=False, rules=(RuleAnswer(rule.id, decision, rule.headers),))
    response = response_for(denied, now_ns=0, options=_WITHOUT_FIGURES)
    headers = [*response.headers[-2:], *response.headers[:-2]]  # those of the body first
    if rule.headers == "on":
        headers.append((POLICY, _policy(rule, limit, place)))
    return {
        "http_status": {"code": "TooManyRequests"},
        "http_body": {"value": b64encode(response.body).decode()},
        "grpc_status": {"code": RESOURCE_EXHAUSTED},
        "response_headers_to_add": [_header(name, value) for name, value in headers],
    }


def _policy(rule: Rule, limit: Limit, place: int) -> str:
    return policy_item(rule.id if place == 1 else f"{rule.id}/{place}", limit)


def _header(name: str, value: str) -> Json:
    return {"header": {"key": name.lower(), "value": value}}
