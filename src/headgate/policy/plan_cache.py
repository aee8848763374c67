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
from headgate.llm.attributes import ATTRIBUTES
from headgate.policy.identity.parts import source_named
from headgate.policy.path import ROUTE
from headgate.runtime.bounded_cache import BoundedCache

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from headgate.engine.plan import Plan
    from headgate.policy.model import Match, Policy, Source

MAX_BYTES: Final = 32 << 20
"""The most bytes that the plans of one policy may take, as `_plan_bytes` estimates them."""

MAX_KEY_BYTES: Final = 4096
"""A plan with a longer key is not cached, because callers choose the paths and headers in it."""

_PLAN_BYTES: Final = 650
"""The size of a plan without rules, with its cache entry and the tuples of its key."""

_WIDEST: Final = 4
"""Bytes of each character in a text with one beyond Latin-1: one is enough for all of them."""

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
    """The approximate size of *key*, whose parts are texts, or more."""
    text = repr(key)
    is_narrow = text.isascii() and "\\" not in text  # and no escape stands for a wide character
    return len(text) if is_narrow else _WIDEST * len(text)


def _plan_bytes(plan: Plan) -> int:
    size = _PLAN_BYTES
    for one in plan.rules:
        size += _RULE_BYTES + getsizeof(one.key) + _CHECK_BYTES * len(one.checks)
    for queueing in plan.queues:
        size += _RULE_BYTES + getsizeof(queueing.key)
    return size


# The parts of a request that a policy reads. No other part can change its plan.


_COOKIE: Final = "cookie"


def reads_of(policy: Policy) -> Reads | None:
    """The parts of requests that the rules of *policy* read; None if that is not known."""
    headers = headers_of_interest(policy)
    if not all(name.isascii() for name in headers):
        return None  # implementations differ in the lower case of other letters
    return Reads(headers, attributes_of_interest(policy))


def headers_of_interest(policy: Policy) -> frozenset[str]:
    """The names, in lower case, of all headers that may matter under *policy*."""
    found = {policy.identity.address.header}
    for source in _sources(policy):
        if source.header is not None:
            found.add(source.header)
        if source.cookie is not None:
            found.add(_COOKIE)
    for match in _matches(policy):
        found.update(name for name, _ in match.headers)
        if match.cookies:
            found.add(_COOKIE)
    for rule in policy.rules:
        if rule.cost.header is not None:
            found.add(rule.cost.header)
        if rule.idempotency is not None:
            found.update((rule.idempotency.header, *rule.idempotency.fingerprint))
    return frozenset(name.lower() for name in found)


def attributes_of_interest(policy: Policy) -> tuple[str, ...]:
    """The names of all attributes that may matter under *policy*."""
    found = {source.attribute for source in _sources(policy) if source.attribute is not None}
    for match in _matches(policy):
        found.update(name for name, _ in match.attributes)
    if any("endpoint" in rule.key_by for rule in policy.rules):
        found.add(ROUTE)
    if reads_models(policy):
        found.update(ATTRIBUTES)
    return tuple(sorted(found))


def reads_models(policy: Policy) -> bool:
    """True if rules need to know what a request asks of a language model."""
    return any(rule.cost.llm is not None for rule in policy.rules) or any(
        match.models for match in _matches(policy)
    )


def _sources(policy: Policy) -> Iterator[Source]:
    """Where the parts of keys are found: the sources of the identity, and those that rules name."""
    yield from policy.identity.sources.values()
    for rule in policy.rules:
        yield from (source_named(part) for part in rule.key_by if ":" in part)


def _matches(policy: Policy) -> Iterator[Match]:
    yield from (rule.match for rule in policy.rules)
    yield from (one.match for one in policy.priorities)
