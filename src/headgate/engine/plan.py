"""What to ask the store about a request: all rules that matched, in one operation. No I/O.

The rules that decide are one `Take`: all or nothing. Each rule in shadow is a take of its own
beside it, in the same round trip, so that what it would have refused changes nothing for the
others. (It counts requests too that another rule refused.)

A repeated request is told by a counter of one unit per lifetime, which is part of the rule's take:
where it has been charged already it refuses, and with that the whole take, so nothing is charged.
Then the rules that have not seen the request are asked again without those that have. So a retry
costs a second round trip, and is free only under the rules that say so.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from headgate.limits import Concurrency, TokenBucket
from headgate.stores.operations import Check, Leave, Take, TakeEach
from headgate.stores.port import group_name
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from headgate.limits import Limit
    from headgate.rules.model import Rule


NOTHING_OPEN: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class RulePlan:
    """A rule that applies to a request: whose counter, what it costs, under which limits."""

    rule: Rule
    key: str
    cost: int
    limits: tuple[Limit, ...]
    checks: tuple[Check, ...]
    marker: Check | None = None
    """The counter that tells whether the request was charged before."""

    @property
    def has_slots(self) -> bool:
        """Whether a place is taken for a while."""
        for limit in self.limits:  # noqa: SIM110 (half the time of any())
            if isinstance(limit, Concurrency):
                return True
        return False

    @property
    def rates(self) -> tuple[Check, ...]:
        """The checks that charge something."""
        return tuple(check for check in self.checks if not _has_slots(check.limit))

    @property
    def slots(self) -> tuple[Check, ...]:
        """The checks that take a place for a while."""
        return tuple(check for check in self.checks if _has_slots(check.limit))


@dataclass(frozen=True, slots=True)
class Plan:
    """All that applies to a request, under the policy of *revision*."""

    revision: int
    rules: tuple[RulePlan, ...]
    lease: str | None = None
    open: frozenset[str] = NOTHING_OPEN
    """The ids of those rules whose amounts are known only afterwards: held, and settled then."""

    deciding: tuple[RulePlan, ...] = field(init=False, repr=False, compare=False)
    shadows: tuple[RulePlan, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shadows = tuple([one for one in self.rules if one.rule.mode == "shadow"])
        deciding = self.rules
        if shadows:
            deciding = tuple([one for one in self.rules if one.rule.mode == "enforce"])
        object.__setattr__(self, "deciding", deciding)
        object.__setattr__(self, "shadows", shadows)

    @property
    def only_check(self) -> Check | None:
        """The one check, if there is one and nothing else to it."""
        if len(self.rules) != 1 or self.lease is not None or self.shadows or self.open:
            return None
        one = self.rules[0]
        return one.checks[0] if len(one.checks) == 1 and one.marker is None else None

    @property
    def left_open(self) -> list[RulePlan]:
        """The rules that have something to settle afterwards."""
        return [one for one in self.rules if one.rule.id in self.open and one.rates]

    def for_holding(self) -> Plan:
        """The same without telling repeated requests where something is held, which is settled
        once anyway, or in shadow."""
        return replace(self, rules=tuple(self._for_holding(one) for one in self.rules))

    def _for_holding(self, one: RulePlan) -> RulePlan:
        is_marked = one.rule.id not in self.open and one.rule.mode == "enforce"
        return one if is_marked else replace(one, marker=None)

    def operation(self, *, consume: bool = True) -> TakeEach | None:
        """What to ask; None if there is nothing to ask."""
        takes = [self._take(self.deciding, consume=consume)] if self.deciding else []
        takes += [self._take((one,), consume=consume) for one in self.shadows]
        return TakeEach(tuple(takes)) if takes else None

    def again(self, repeated: Collection[str], *, consume: bool = True) -> TakeEach:
        """What to ask those deciding rules that have not seen the request; *repeated* have."""
        left = tuple(one for one in self.deciding if one.rule.id not in repeated)
        return TakeEach((self._take(left, consume=consume),) if left else ())

    def _take(self, rules: Sequence[RulePlan], *, consume: bool) -> Take:
        checks = [check for one in rules for check in one.checks]
        markers = [one.marker for one in rules if one.marker is not None]
        lease = self.lease if consume else None
        return Take((*checks, *markers), consume=consume, lease=lease)

    def leaving(self, granted: Iterable[RulePlan]) -> Leave | None:
        """What gives back the slots that the rules *granted* took; None if they took none."""
        slots = [check for one in granted for check in one.slots]
        return Leave(tuple(slots), self.lease) if self.lease and slots else None


def plan_rule(
    rule: Rule,
    limits: tuple[Limit, ...],
    key: str,
    cost: int,
    namespace: str,
    retry: str | None = None,
    counter: str | None = None,
) -> RulePlan:
    """How *rule* is asked about a request of *key*; *retry* is what repetitions have in common.

    The counters are called as the rule is, unless *counter* says otherwise.
    """
    checks = tuple(
        Check(
            _group(namespace, counter or rule.id, n), key, limit, 1 if _has_slots(limit) else cost
        )
        for n, limit in enumerate(limits)
    )
    marker = None if retry is None or not cost else _marker(rule, key, namespace, retry)
    return RulePlan(rule, key, cost, limits, checks, marker)


def _group(namespace: str, name: str, place: int) -> str:
    """Counters are named by rule and place: a changed limit goes on with what was used."""
    return group_name(namespace, name if place == 0 else f"{name}#{place}")


def _marker(rule: Rule, key: str, namespace: str, retry: str) -> Check | None:
    if rule.idempotency is None:
        return None
    digest = blake2b(retry.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    once = TokenBucket(1, Fraction(SECOND, rule.idempotency.ttl_ns))
    return Check(group_name(namespace, f"{rule.id}!seen"), f"{key}&{digest}", once, 1)


def _has_slots(limit: Limit) -> bool:
    return isinstance(limit, Concurrency)
