"""The id of a reservation: everything that is needed to settle it, signed.

Any worker of any replica can settle a reservation, so none of them keeps state about it. The store
has the hold; the id says where:

    version (1 byte) | the receipt, JSON, deflated | the first 16 bytes of an HMAC-SHA256

in base64url. The key is derived from the service's secret and the namespace, so ids cannot be
forged. They can be read: they contain the keys of counters as the store has them, with secrets
hashed.
"""

from __future__ import annotations

import binascii
import hmac
import json
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import OptionError
from headgate.limits import Concurrency, parse_limit
from headgate.stores.operations import Check, ReleaseSlot, Settle
from headgate.units import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headgate.engine.plan import RulePlan
    from headgate.engine.verdict import Verdict
    from headgate.limits import Limit
    from headgate.policy.model import Rule

VERSION: Final = b"\x01"
LONGEST: Final = 4_096
"""Maximum length of an id in characters by default: it is part of a URL."""

_PURPOSE: Final = b"headgate reservation"
_DIGEST: Final = 16

_STORES: Final = frozenset({"store", "lease", "sync", "cache"})
"""Sources of decisions that the store knows of: itself, leases, caches of its replies."""

Limits = tuple["Limit", ...]


@dataclass(frozen=True, slots=True)
class HeldRule:
    """The hold of one rule: *cost* under *key*, in a counter for each limit.

    *tier* contains the tier of the limits; empty if unknown.
    """

    id: str
    cost: int
    key: str
    groups: tuple[str, ...]
    limits: Limits
    tier: tuple[str | None, ...] = ()

    def checks(self, amount: int, limits: Limits) -> list[Check]:
        """The checks that charge *amount* under the current *limits*."""
        pairs = zip(self.groups, limits, strict=True)
        return [Check(group, self.key, limit, amount) for group, limit in pairs]

    def limits_under(self, rule: Rule | None) -> Limits:
        """The limits that *rule*, now in force with this id, has for the same caller; those of the
        reservation if their number or kind differs, or the rule is gone."""
        if rule is None or not self.tier:
            return self.limits
        today = rule.limits_for(self.tier[0])
        is_like_it = len(today) == len(self.limits) and all(one.is_divisible for one in today)
        return today if is_like_it else self.limits


@dataclass(frozen=True, slots=True)
class Receipt:
    """A reservation. *is_held*: the store has the hold; otherwise it was granted during an outage.
    Its slots were taken at *since_ns*."""

    name: str
    expires_ns: int
    rules: tuple[HeldRule, ...]
    slots: tuple[Check, ...] = ()
    is_held: bool = True
    since_ns: int = 0

    @classmethod
    def of(cls, verdict: Verdict, expires_ns: int) -> Receipt:
        """The receipt for the reservation granted by *verdict*."""
        held, slots = verdict.held, verdict.slots or verdict.local_slots
        name = "" if slots is None else slots.lease  # the same as that of a hold beside it
        sources = {one.decision.source for one in verdict.rules if not one.is_shadow}
        return cls(
            name if held is None else held.name,
            expires_ns,
            () if held is None else tuple([rule for one in held.rules for rule in _held(one)]),
            () if slots is None else slots.checks,
            sources <= _STORES,
            0 if slots is None else verdict.since_ns,
        )

    def amounts(
        self, cost: int | Mapping[str, int] | None, rule: Callable[[str], Rule | None]
    ) -> dict[str, int]:
        """The amount to settle for each rule: *cost*, for all or by rule, or else the amount held.
        A candidate follows the rule that it is a candidate of.

        *rule* is as for `settle`.
        """
        if cost is None:
            return {one.id: one.cost for one in self.rules}
        if isinstance(cost, int):
            return {one.id: cost for one in self.rules}
        amounts = {}
        for one in self.rules:
            found = rule(one.id)
            live = "" if found is None else found.candidate_of or ""
            amounts[one.id] = cost.get(one.id, cost.get(live, one.cost))
        return amounts

    def settle(
        self, amounts: Mapping[str, int], rule: Callable[[str], Rule | None]
    ) -> Settle | None:
        """The operation that settles each rule for its amount; None if there is no hold.

        *rule* finds a rule of the policy in force by its id.
        """
        checks = [
            check
            for one in self.rules
            for check in one.checks(amounts[one.id], one.limits_under(rule(one.id)))
        ]
        # A hold that is not open is settled or expired: the store cannot tell which. So that
        # nothing is charged twice, neither is charged.
        return Settle(tuple(checks), self.name, charge_lapsed=False) if checks else None

    @property
    def release(self) -> ReleaseSlot | None:
        """The operation that releases the slots; None if there are none."""
        return ReleaseSlot(self.slots, self.name) if self.slots else None


class Receipts:
    """Encodes receipts as ids, of at most *longest* characters, and decodes ids of any worker."""

    def __init__(self, secret: bytes, namespace: str, longest: int = LONGEST) -> None:
        if not secret:
            raise OptionError("the secret of the service is empty; ids could be forged")
        self._key = hmac.digest(secret, _PURPOSE + VERSION + namespace.encode(), "sha256")
        self._longest = longest

    def id_of(self, receipt: Receipt) -> str | None:
        """The id of *receipt*; None if it would be too long."""
        text = json.dumps(_data(receipt), separators=(",", ":")).encode("ascii")
        signed = VERSION + zlib.compress(text, 9, wbits=-15)
        found = urlsafe_b64encode(signed + self._digest(signed)).rstrip(b"=").decode("ascii")
        return found if len(found) <= self._longest else None

    def receipt_of(self, text: bytes) -> Receipt | None:
        """The receipt in the id *text*; None if no worker made it."""
        if not _DIGEST * 4 // 3 < len(text) <= self._longest:
            return None
        try:
            sealed = urlsafe_b64decode(text + b"=" * (-len(text) % 4))
        except binascii.Error:
            return None
        signed, digest = sealed[:-_DIGEST], sealed[-_DIGEST:]
        if signed[:1] != VERSION or not hmac.compare_digest(self._digest(signed), digest):
            return None
        return _receipt(json.loads(zlib.decompress(signed[1:], wbits=-15)))

    def _digest(self, signed: bytes) -> bytes:
        return hmac.digest(self._key, signed, "sha256")[:_DIGEST]


def _held(one: RulePlan) -> Iterator[HeldRule]:
    """The holds of a rule: one for each key that it charges."""
    rates = one.amounts
    limits = one.rule.declared.limits.items()
    tiers = [tier for tier, of_tier in limits if of_tier == one.limits]
    for key in dict.fromkeys(check.key for check in rates):
        own = [check for check in rates if check.key == key]
        yield HeldRule(
            one.rule.id,
            one.cost,
            key,
            tuple([check.group for check in own]),
            tuple([check.limit for check in own]),
            tuple(tiers[:1]) if len(own) == len(one.limits) else (),
        )


def _data(receipt: Receipt) -> list[Any]:
    rules = [
        [one.id, one.cost, one.key, one.groups, [str(limit) for limit in one.limits], one.tier]
        for one in receipt.rules
    ]
    slots = [
        [slot.group, slot.key, slot.limit.limit, slot.limit.ttl]
        for slot in receipt.slots
        if isinstance(slot.limit, Concurrency)
    ]
    expires_ms = receipt.expires_ns // MILLISECOND
    since_ms = receipt.since_ns // MILLISECOND
    return [receipt.name, expires_ms, rules, slots, receipt.is_held, since_ms]


_limit: Final = lru_cache(maxsize=4096)(parse_limit)  # to read one takes 30 us


def _receipt(data: list[Any]) -> Receipt:
    name, expires_ms, rules, slots, is_held, since_ms = data
    return Receipt(
        name,
        expires_ms * MILLISECOND,
        tuple(
            HeldRule(id_, cost, key, tuple(groups), tuple(map(_limit, limits)), tuple(tier))
            for id_, cost, key, groups, limits, tier in rules
        ),
        tuple(Check(group, key, Concurrency(limit, ttl)) for group, key, limit, ttl in slots),
        is_held,
        since_ms * MILLISECOND,
    )
