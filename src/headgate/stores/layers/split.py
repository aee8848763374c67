"""The store layer that splits hot counters into sub-counters on different shards of a cluster.

A counter under `split: K` becomes K sub-counters, each with 1/K of the limit (rates and capacities,
whole units rounded down). A request takes all of its cost from one of them, picked at random. So K
shards share the load of one key, and all together never allow more than the limit. The price is
precision: a request sees 1/K of the limit.

- A cost above 1/K of the limit never fits. A limit of fewer than K units is not split.
- A request may be denied while other sub-counters have units. `remaining` and `retry_after` are
  those of the sub-counter that was picked: a retry may fit earlier.
- A peek reads all of them: `remaining` is the sum, `retry_after` the shortest.
- `charge` and `refund` are spread evenly over all of them. What one cannot take back is lost, so a
  refund never returns more than was used.
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
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from headgate.chance import below
from headgate.errors import StoreError
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
    from collections.abc import Callable, Sequence

    from headgate.algorithms import Outcome
    from headgate.limits import Limit
    from headgate.runtime.effects import Effects
    from headgate.stores.base import Accuracies, Place, Store
    from headgate.stores.operations import Outcomes

R = TypeVar("R")

TAGS: Final = 16
"""The number of hash tags that keys of a cluster have."""


def _marks() -> str:
    """A character for each sub-counter, in the order that the module describes."""
    by_tag: dict[int, list[str]] = {}
    for code in range(ord("!"), ord("~") + 1):
        by_tag.setdefault(crc32(bytes([code])) % TAGS, []).append(chr(code))
    order = [int(f"{number:04b}"[::-1], 2) for number in range(TAGS)]
    return "".join([by_tag[tag][row] for row in range(MOST_PARTS // TAGS) for tag in order])


MARKS: Final = _marks()


class SplitStore(Layer):
    """*inner*, with the counters of some groups split, see `set_accuracies`.

    *pick* returns a random integer below its argument.
    """

    def __init__(self, inner: Store, *, pick: Callable[[int], int] = below) -> None:
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
        reply: Any
        if isinstance(operation, TakeEach):
            routed = [self._routed(take) for take in operation.takes]
            reply = yield from self.inner.effects(TakeEach(tuple([take for take, _ in routed])))
            pairs = zip(reply, routed, strict=True)
            reply = tuple([_joined(*one, outcomes) for outcomes, one in pairs])
        else:
            one = self._routed(operation)
            reply = _joined(*one, (yield from self.inner.effects(one[0])))
        return cast("R", reply)

    def prepare(self, places: Sequence[Place]) -> Prepared:
        kept = tuple(places)
        bound = self._bind(kept)

        def effects(keys: Sequence[str], costs: Sequence[int]) -> Effects[Outcomes]:
            nonlocal bound
            if bound[0] is not self._parts:
                bound = self._bind(kept)
            _, inner, counts = bound
            if max(counts) > 1:
                number = self._pick(MOST_PARTS)
                pairs = zip(keys, counts, strict=True)
                keys = [_sub_key(key, number, parts) for key, parts in pairs]
            return inner.effects(keys, costs)

        return Prepared(effects)

    def _bind(self, places: Sequence[Place]) -> tuple[object, Prepared, list[int]]:
        """The version of the settings, the handle of the inner store, and the number of
        sub-counters of each place."""
        counts = [self._count(*place) for place in places]
        pairs = zip(places, counts, strict=True)
        inner = self.inner.prepare([_sub_place(*place, parts) for place, parts in pairs])
        return self._parts, inner, counts

    def _routed(self, operation: Operation[Any]) -> tuple[Any, list[int]]:
        """*operation* on the sub-counters that it belongs to.

        If each check stands for several outcomes of the reply, their numbers; else none.
        """
        match operation:
            case Take(consume=False) | Charge() | Refund() | Reset():
                first = self._pick(MOST_PARTS) if isinstance(operation, Charge | Refund) else 0
                spread = [self._spread(operation, check, first) for check in operation.checks]
                counts = [] if isinstance(operation, Reset) else list(map(len, spread))
                return replace(operation, checks=tuple(chain.from_iterable(spread))), counts
            case GrantLease(check, holder, cap=cap):
                cap = None if cap is None else cap // self._count(check.group, check.limit)
                check = self._sub_check(check, _number(holder))
                return replace(operation, check=check, cap=cap), []
            case Hold(name=name) | Settle(name=name) | MergeUsage(origin=name):
                number = _number(name)
            case Take() | TakeUpTo():
                number = self._pick(MOST_PARTS)
            case _:
                return operation, []
        checks = [self._sub_check(check, number) for check in operation.checks]
        return replace(operation, checks=tuple(checks)), []

    def _spread(self, operation: Operation[Any], check: Check, first: int) -> list[Check]:
        """*check* in all sub-counters; of an amount an even part in each that gets any."""
        parts = self._count(check.group, check.limit)
        if not isinstance(operation, Charge | Refund):
            return [self._sub_check(check, number) for number in range(parts)]
        amounts = [(check.cost + parts - 1 - number) // parts for number in range(parts)]
        return [
            self._sub_check(replace(check, cost=amount), first + number)
            for number, amount in enumerate(amounts)
            if amount or number == 0
        ]

    def _sub_check(self, check: Check, number: int) -> Check:
        """*check* in the sub-counter with *number*; a counter that is not split stays."""
        parts = self._count(check.group, check.limit)
        group, limit = _sub_place(check.group, check.limit, parts)
        return Check(group, _sub_key(check.key, number, parts), limit, check.cost)

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


def _joined(operation: Operation[Any], counts: Sequence[int], reply: Any) -> Any:
    """The *reply* to *operation* with one outcome per check in place of *counts* of them: of a peek
    their sum, otherwise the first."""
    if not counts or isinstance(reply, StoreError):
        return reply
    outcomes = iter(reply)
    parts = [list(islice(outcomes, count)) for count in counts]
    return tuple([_sum(same) if isinstance(operation, Take) else same[0] for same in parts])


def _sum(same: Sequence[Outcome]) -> Outcome:
    """The outcome of peeks at all sub-counters of one counter."""
    waits = [one.retry_after_ns for one in same if one.retry_after_ns is not None]
    return next((one for one in same if one.allowed), same[0])._replace(
        remaining=sum([one.remaining for one in same]),
        retry_after_ns=min(waits, default=None),
        reset_after_ns=max([one.reset_after_ns for one in same]),
    )
