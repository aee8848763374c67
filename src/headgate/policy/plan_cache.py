"""A cache of plans: equal requests share one plan.

The cache is a security boundary: a plan must never serve a request that the rules would plan
differently. So a key holds everything that the compiled rules can read of a request (`Reads`), and
the cost that the caller gave. A plan is kept only if nothing in it belongs to one request or one
moment: no slots, holds, markers of repeated requests or blocks, and no override of its counters.

A cache belongs to one compiled policy and to one pressure factor; when either changes, a new cache
takes its place. It is bounded in bytes. The oldest plan is dropped first, even if it is still
in use; the next such request is planned again.
"""

from __future__ import annotations

from sys import getsizeof
from typing import TYPE_CHECKING, Final

from headgate.engine.request import Reads
from headgate.policy.path import ROUTE
from headgate.runtime.bounded_cache import BoundedCache

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from headgate.engine.plan import Plan
    from headgate.policy.model import Match, Policy, Rule

MAX_BYTES: Final = 32 << 20
"""The most bytes that the plans of one policy may take, as `_plan_bytes` estimates them."""

MAX_KEY_BYTES: Final = 4096
"""A plan with a longer key is not cached, because callers choose the paths and headers in it."""

_PLAN_BYTES: Final = 650
"""The size of a plan without rules, with its cache entry and the tuples of its key."""

_RULE_BYTES: Final = 350
_CHECK_BYTES: Final = 150


class PlanCache(BoundedCache["Plan"]):
    """The plans of equal requests, at most *max_bytes*. Safe to share among threads."""

    __slots__ = ("version",)

    def __init__(self, version: int, max_bytes: int = MAX_BYTES) -> None:
        super().__init__(max_bytes)
        self.version = version
        """The version of the pressure factor of the plans."""

    def keep(self, key: tuple[Hashable, ...], plan: Plan) -> None:
        """Cache *plan* for requests with *key*, unless the key is longer than `MAX_KEY_BYTES`."""
        key_bytes = _key_bytes(key)
        if key_bytes <= MAX_KEY_BYTES:
            self.put(key, plan, key_bytes + _plan_bytes(plan))


def _key_bytes(key: tuple[Hashable, ...]) -> int:
    """The approximate size of *key*, whose parts are texts."""
    return len(repr(key).encode())


def _plan_bytes(plan: Plan) -> int:
    size = _PLAN_BYTES
    for one in plan.rules:
        size += _RULE_BYTES + getsizeof(one.key) + _CHECK_BYTES * len(one.checks)
    for queueing in plan.queues:
        size += _RULE_BYTES + getsizeof(queueing.key)
    return size


# The parts of a request that a policy reads. No other part can change its plan.


_COOKIE: Final = "cookie"
_HEADER_PREFIX: Final = "header:"
_ATTRIBUTE_PREFIX: Final = "attribute:"


def reads_of(policy: Policy) -> Reads | None:
    """The parts of requests that the rules of *policy* read; None if that is not known."""
    headers = headers_of_interest(policy)
    if not all(name.isascii() for name in headers):
        return None  # implementations differ in the lower case of other letters
    return Reads(headers, attributes_of_interest(policy))


def headers_of_interest(policy: Policy) -> frozenset[str]:
    """The names, in lower case, of all headers that may matter under *policy*."""
    identity = policy.identity
    found = {identity.address.header}
    for source in identity.sources.values():
        if source.header is not None:
            found.add(source.header)
        if source.cookie is not None:
            found.add(_COOKIE)
    for rule in policy.rules:
        found.update(_headers_of_rule(rule))
    for priority in policy.priorities:
        found.update(_headers_of_match(priority.match))
    return frozenset(name.lower() for name in found)


def attributes_of_interest(policy: Policy) -> tuple[str, ...]:
    """The names of all attributes that may matter under *policy*."""
    sources = policy.identity.sources.values()
    found = {source.attribute for source in sources if source.attribute is not None}
    for rule in policy.rules:
        found.update(name for name, _ in rule.match.attributes)
        for part in rule.key_by:
            if part.startswith(_ATTRIBUTE_PREFIX):
                found.add(part.removeprefix(_ATTRIBUTE_PREFIX))
        if "endpoint" in rule.key_by:
            found.add(ROUTE)
    for priority in policy.priorities:
        found.update(name for name, _ in priority.match.attributes)
    return tuple(sorted(found))


def _headers_of_match(match: Match) -> Iterator[str]:
    for name, _ in match.headers:
        yield name
    if match.cookies:
        yield _COOKIE


def _headers_of_rule(rule: Rule) -> Iterator[str]:
    yield from _headers_of_match(rule.match)
    for part in rule.key_by:
        if part.startswith(_HEADER_PREFIX):
            yield part.removeprefix(_HEADER_PREFIX)
        elif part.startswith(f"{_COOKIE}:"):
            yield _COOKIE
    if rule.cost.header is not None:
        yield rule.cost.header
    if rule.idempotency is not None:
        yield rule.idempotency.header
        yield from rule.idempotency.fingerprint
