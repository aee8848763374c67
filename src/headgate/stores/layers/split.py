"""The store layer that splits hot counters into sub-counters on different shards of a cluster.

A counter under `split: K` becomes K sub-counters, each with 1/K of the limit (rates and capacities,
whole units rounded down). A request takes all of its cost from one of them, picked at random. So K
shards share the load of one key, and all together never allow more than the limit. The price is
precision: a request sees 1/K of the limit.

- A cost above 1/K of the limit never fits. A limit of fewer than K units is not split.
- A request may be denied while other sub-counters have units. `remaining` and `retry_after` are
  those of the sub-counter that was asked: a retry may fit earlier.
- A peek asks all of them: `remaining` is the sum, `retry_after` the shortest.
- `charge` and `refund` are spread evenly over all of them. What one cannot take back is lost, so a
  refund never gives back more than was used.
- A reservation stays in one sub-counter, chosen by its name; a lease in one chosen by its holder.
- A reset resets all of them. A changed K keeps the sub-counters that it has in common.

A sub-counter has the key and one more character, in a group of its own: no other counter has that
name. A cluster places keys by the low four bits of their CRC-32, the number of their tag; tags with
near numbers are on one shard. CRC-32 is linear: the characters change the number of any key by
exclusive or with 0, 8, 4, 12, 2, ..., so that the first 2, 4, 8 or 16 are spread evenly.
"""

from __future__ import annotations

from binascii import crc32
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from random import randrange
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from headgate.limits import scaled
from headgate.limits.accuracy import MOST_PARTS
from headgate.stores.base import Layer, Prepared
from headgate.stores.operations import (
    Charge,
    Check,
    GrantLease,
    Hold,
    MergeUsage,
    Operation,
    Refund,
    Reset,
    Settle,
    Take,
    TakeEach,
    TakeUpTo,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from headgate.errors import StoreError
    from headgate.limits import Limit
    from headgate.runtime.effects import Effects
    from headgate.stores.base import Accuracies, Place, Store
    from headgate.stores.operations import Outcomes

R = TypeVar("R")

TAGS: Final = 16
"""The number of hash tags that keys of a cluster have."""


def _marks() -> str:
    """A character for each sub-counter; the module says in which order."""
    by_tag: dict[int, list[str]] = {}
    for code in range(ord("!"), ord("~") + 1):
        by_tag.setdefault(crc32(bytes([code])) % TAGS, []).append(chr(code))
    order = [int(f"{number:04b}"[::-1], 2) for number in range(TAGS)]
    return "".join([by_tag[tag][row] for row in range(MOST_PARTS // TAGS) for tag in order])


MARKS: Final = _marks()


class SplitStore(Layer):
    """*inner*, with the counters of some groups split as `set_accuracies` says.

    *pick* returns a random integer below its argument.
    """

    def __init__(self, inner: Store, *, pick: Callable[[int], int] = randrange) -> None:
        super().__init__(inner)
        self._pick = pick
        self._parts: dict[str, int] = {}

    def set_accuracies(self, accuracies: Accuracies) -> None:
        parts = {group: how.split for group, how in accuracies.items() if how.split > 1}
        self._parts = parts
        self.inner.set_accuracies(
            {**accuracies, **{_sub_group(group): accuracies[group] for group in parts}}
        )

    def effects(self, operation: Operation[R]) -> Effects[R]:
        if not self._parts:
            return (yield from self.inner.effects(operation))
        if isinstance(operation, Take | TakeEach):
            return cast("R", (yield from self._take(operation)))
        if isinstance(operation, Charge | Refund):
            return cast("R", (yield from self._spread(operation)))
        return (yield from self.inner.effects(self._routed(operation)))

    def prepare(self, places: Sequence[Place]) -> Prepared:
        kept = tuple(places)
        bound = self._parts, *self._bind(kept)

        def renamed(keys: Sequence[str]) -> tuple[Prepared, Sequence[str]]:
            nonlocal bound
            if bound[0] is not self._parts:
                bound = self._parts, *self._bind(kept)
            _, inner, counts = bound
            if max(counts) == 1:
                return inner, keys
            number = self._pick(MOST_PARTS)
            pairs = zip(keys, counts, strict=True)
            return inner, [_sub_key(key, number, parts) for key, parts in pairs]

        def take(keys: Sequence[str], costs: Sequence[int]) -> Outcomes:
            inner, keys = renamed(keys)
            return inner.take(keys, costs)

        def atake(keys: Sequence[str], costs: Sequence[int]) -> Outcomes | Awaitable[Outcomes]:
            inner, keys = renamed(keys)
            return inner.atake(keys, costs)

        return Prepared(take, atake if self.waits else take)

    def _bind(self, places: Sequence[Place]) -> tuple[Prepared, list[int]]:
        """The handle of the inner store, and the number of sub-counters of each place."""
        counts = [self._count(group, limit) for group, limit in places]
        pairs = zip(places, counts, strict=True)
        return self.inner.prepare([_sub_place(*place, parts) for place, parts in pairs]), counts

    def _take(self, operation: Take | TakeEach) -> Effects[Any]:
        """Take from one sub-counter of each check; peek at all."""
        takes = operation.takes if isinstance(operation, TakeEach) else (operation,)
        routed = [self._sub_takes(take) for take in takes]
        if isinstance(operation, Take) and len(routed[0]) == 1:
            return (yield from self.inner.effects(routed[0][0]))
        flat = TakeEach(tuple([one for some in routed for one in some]))
        replies = iter((yield from self.inner.effects(flat)))
        results = tuple(
            [
                _summed([next(replies) for _ in some], self._counts(take))
                for take, some in zip(takes, routed, strict=True)
            ]
        )
        if isinstance(operation, TakeEach):
            return results
        if not isinstance(results[0], tuple):
            raise results[0]
        return results[0]

    def _sub_takes(self, take: Take) -> list[Take]:
        """The takes that *take* stands for: one, or one for each sub-counter to peek at."""
        parts = max(self._counts(take), default=1)
        numbers = [self._pick(MOST_PARTS)] if take.consume or parts == 1 else range(parts)
        return [replace(take, checks=self._sub_checks(take.checks, number)) for number in numbers]

    def _spread(self, operation: Charge | Refund) -> Effects[Outcomes]:
        """Charge or refund an even part of each amount in each sub-counter."""
        first = self._pick(MOST_PARTS)
        checks: list[Check] = []
        places: list[int] = []
        for check in operation.checks:
            places.append(len(checks))
            parts = self._count(check.group, check.limit)
            share, rest = divmod(check.cost, parts)
            costs = [share + (number < rest) for number in range(parts)]
            for number, cost in enumerate(costs):
                if cost or number == 0:
                    part = replace(check, cost=cost)
                    checks += self._sub_checks((part,), first + number)
        outcomes: Outcomes = yield from self.inner.effects(replace(operation, checks=tuple(checks)))
        return tuple([outcomes[place] for place in places])

    def _routed(self, operation: Operation[R]) -> Operation[R]:
        """*operation* on the sub-counters that it belongs to."""
        changed: Operation[Any] = operation
        if isinstance(operation, Hold | Settle):
            number = _number(operation.name)
            changed = replace(operation, checks=self._sub_checks(operation.checks, number))
        elif isinstance(operation, TakeUpTo):
            number = self._pick(MOST_PARTS)
            changed = replace(operation, checks=self._sub_checks(operation.checks, number))
        elif isinstance(operation, MergeUsage):
            number = _number(operation.origin)
            changed = replace(operation, checks=self._sub_checks(operation.checks, number))
        elif isinstance(operation, GrantLease):
            check = operation.check
            parts = self._count(check.group, check.limit)
            (part,) = self._sub_checks((check,), _number(operation.holder))
            cap = None if operation.cap is None else operation.cap // parts
            changed = replace(operation, check=part, cap=cap)
        elif isinstance(operation, Reset):
            checks = [
                part
                for check in operation.checks
                for number in range(self._count(check.group, check.limit))
                for part in self._sub_checks((check,), number)
            ]
            changed = replace(operation, checks=tuple(checks))
        return changed

    def _sub_checks(self, checks: Sequence[Check], number: int) -> tuple[Check, ...]:
        """*checks* in the sub-counters with *number*; a counter that is not split stays."""
        found = []
        for check in checks:
            parts = self._count(check.group, check.limit)
            group, limit = _sub_place(check.group, check.limit, parts)
            found.append(Check(group, _sub_key(check.key, number, parts), limit, check.cost))
        return tuple(found)

    def _counts(self, take: Take) -> list[int]:
        return [self._count(check.group, check.limit) for check in take.checks]

    def _count(self, group: str, limit: Limit) -> int:
        """The number of sub-counters of each counter of *group* under *limit*."""
        parts = self._parts.get(group, 1)
        return parts if limit.is_divisible and limit.quota >= parts else 1


def _number(name: str) -> int:
    return crc32(name.encode("utf-8", "surrogatepass"))


def _sub_group(group: str) -> str:
    return f"split:{group}"


def _sub_place(group: str, limit: Limit, parts: int) -> Place:
    return (group, limit) if parts == 1 else (_sub_group(group), _sub_limit(limit, parts))


def _sub_key(key: str, number: int, parts: int) -> str:
    return key if parts == 1 else key + MARKS[number % parts]


@lru_cache(maxsize=1024)
def _sub_limit(limit: Limit, parts: int) -> Limit:
    return scaled(limit, Fraction(1, parts))


def _summed(replies: list[Outcomes | StoreError], counts: Sequence[int]) -> Outcomes | StoreError:
    """The outcomes of peeks at all sub-counters as one; the error of any of them.

    *counts* has the number of sub-counters of each check, of which the first replies have one each.
    """
    first = replies[0]
    if len(replies) == 1 or not isinstance(first, tuple):
        return first
    several: list[Outcomes] = []
    for reply in replies:
        if not isinstance(reply, tuple):
            return reply
        several.append(reply)
    return tuple(
        [
            next((one for one in same if one.allowed), same[0])._replace(
                remaining=sum(one.remaining for one in same),
                retry_after_ns=min(
                    [one.retry_after_ns for one in same if one.retry_after_ns is not None],
                    default=None,
                ),
                reset_after_ns=max([one.reset_after_ns for one in same]),
            )
            for same in [
                all_of_check[:count]
                for all_of_check, count in zip(zip(*several, strict=True), counts, strict=True)
            ]
        ]
    )
