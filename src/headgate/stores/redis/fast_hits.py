"""The short way: hits under one paced limit, many of them in one call.

This is the path that most checks take, so it does little: equal hits of one key in one batch are
one entry, the script answers with one integer per entry, and the figures of a decision are computed
when somebody reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import hiredis

from headgate.algorithms import Outcome
from headgate.stores.operations import Check
from headgate.stores.redis.calls import (
    Arguments,
    ScriptRequest,
    Waiter,
    disappoint,
    listed,
    outcomes_of_take,
)
from headgate.stores.redis.errors import store_error
from headgate.stores.redis.request import Request, script
from headgate.units import MICROSECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.errors import StoreError
    from headgate.stores.operations import Outcomes
    from headgate.stores.redis.codec import PacedSpec
    from headgate.stores.redis.request import Reply

MOST_HITS: Final = 32
"""Entries in one call: more would make the server's other callers wait, fewer cost it more."""


class Place:
    """A limit and the group of its counters: what all hits of a batch have in common."""

    __slots__ = (
        "_tails",
        "first",
        "group",
        "limit",
        "quota",
        "script",
        "span",
        "spec",
        "ticks",
        "unit",
    )

    def __init__(self, group: str, spec: PacedSpec) -> None:
        self.group = group
        self.spec = spec
        self.limit = spec.limit
        self.quota = spec.quota
        self.ticks, self.unit, self.span = spec.ticks, spec.unit, spec.span
        if spec.ticks == 1:
            self.script = script("hit")
            self.first: Arguments = [spec.span, spec.suffix, spec.unit]
        else:
            self.script = script("hit_ticks")
            span = divmod(spec.span, spec.ticks)
            self.first = [*span, spec.ticks, spec.suffix, spec.quota, spec.unit]
        self._tails: dict[int, tuple[bytes, bytes]] = {}

    def packed_alone(self, name: bytes, cost: int) -> bytes:
        """The command for a single hit on the server's clock, of which only the name is new."""
        head, tail = self._tails.get(cost) or self._ends(cost)
        return b"%b$%d\r\n%b%b" % (head, len(name), name, tail)

    def _ends(self, cost: int) -> tuple[bytes, bytes]:
        """What comes before and after the name."""
        batch = HitBatch(self, b"")
        batch.add(b"?", "", cost, NOBODY)
        head, _, tail = batch.packed().partition(b"$1\r\n?")
        if len(self._tails) >= _MOST_TAILS:
            self._tails.clear()
        self._tails[cost] = head, tail
        return head, tail

    def outcomes(self, need: int, after: int) -> Outcomes:
        """The outcome of a hit that needs *need* ticks, *after* being in use with it."""
        ticks, span = self.ticks, self.span
        if after <= span:
            reset_ns = -(-after // ticks) * MICROSECOND
            return (Outcome(True, (span - after) // self.unit, 0, reset_ns),)  # noqa: FBT003
        free = span - after + need
        remaining = free // self.unit if free > 0 else 0
        wait_ns = -((span - after) // ticks) * MICROSECOND
        reset_ns = -((need - after) // ticks) * MICROSECOND
        return (Outcome(False, remaining, wait_ns, reset_ns),)  # noqa: FBT003


class HitBatch(ScriptRequest):
    """Hits of many waiters, each for itself, in the order in which they were added."""

    __slots__ = ("_entries", "_is_uniform", "_now", "_place", "_places")

    def __init__(self, place: Place, now: bytes) -> None:
        self.script = place.script
        self.keys = []
        self._place = place
        self._now = now
        self._entries: list[Entry] = []
        self._places: dict[bytes, Entry] = {}
        self._is_uniform = True

    def add(self, name: bytes, key: str, cost: int, waiter: Waiter) -> int:
        """Hit *key*, whose counter is *name*, for *cost*, which is from 1 to the quota.

        Returns how many entries there are.
        """
        entries = self._entries
        same = self._places.get(name)
        if same is not None and same[0] == cost:
            same[2].append(waiter)
            self._is_uniform = False
            return len(entries)
        self._places[name] = entry = (cost, key, [waiter])
        entries.append(entry)
        self.keys.append(name)
        if cost != 1:
            self._is_uniform = False
        return len(entries)

    def packed(self) -> bytes:
        self.arguments = self._arguments()
        return super().packed()

    def packed_whole(self) -> bytes:
        self.arguments = self._arguments()
        return super().packed_whole()

    def answered(self, reply: Reply) -> None:
        ticks, now = self._place.ticks, listed(reply)[0]
        if ticks == 1:
            for entry, instant in zip(self._entries, reply[1:], strict=True):
                if type(instant) is int:
                    self._decide(entry, instant - now)
                else:
                    self._answer_slowly(entry, instant, now)
            return
        triples = zip(self._entries, reply[1::2], reply[2::2], strict=True)
        for entry, instant, more in triples:
            if type(instant) is int:
                self._decide(entry, (instant - now) * ticks + more)
            else:
                self._answer_slowly(entry, instant, now)

    def _decide(self, entry: Entry, in_use: int) -> None:
        """Tell the waiters of *entry* what became of them; *in_use* ticks were so before."""
        place = self._place
        cost, _, waiters = entry
        need = cost * place.unit
        for waiter in waiters:
            after = in_use + need
            if not waiter.done():
                waiter.set_result(place.outcomes(need, after))
            if after <= place.span:
                in_use = after

    def _answer_slowly(self, entry: Entry, told: Reply, now: int) -> None:
        cost, key, waiters = entry
        if isinstance(told, hiredis.ReplyError):
            disappoint(waiters, store_error(str(told), "the store"))
            return
        check = Check(self._place.group, key, self._place.limit, cost)
        for waiter, one in zip(waiters, told, strict=True):
            if not waiter.done():
                waiter.set_result(outcomes_of_take((check,), one, now, consume=True))

    def failed(self, error: StoreError) -> None:
        for _, _, waiters in self._entries:
            disappoint(waiters, error)

    def parts(self) -> Sequence[Request]:
        if len(self._entries) == 1:
            return (self,)
        parts = []
        for name, (cost, key, waiters) in zip(self.keys, self._entries, strict=True):
            part = HitBatch(self._place, self._now)
            for waiter in waiters:
                part.add(name, key, cost, waiter)
            parts.append(part)
        return parts

    def _arguments(self) -> Arguments:
        place = self._place
        arguments = [self._now, *place.first]
        if place.ticks > 1:
            for cost, _, waiters in self._entries:
                arguments += (*place.spec.duration(cost), len(waiters), cost)
        elif not self._is_uniform:
            for cost, _, waiters in self._entries:
                arguments += (cost * place.unit, len(waiters), cost)
        return arguments


class LoneHit(Request):
    """One hit on the server's clock, by itself: what there is to send when nobody else asks."""

    __slots__ = ("_cost", "_key", "_name", "_place", "_waiter")

    def __init__(self, place: Place, name: bytes, key: str, cost: int, waiter: Waiter) -> None:
        self._place = place
        self._name = name
        self._key = key
        self._cost = cost
        self._waiter = waiter

    @property
    def key(self) -> bytes:
        return self._name

    def packed(self) -> bytes:
        return self._place.packed_alone(self._name, self._cost)

    def packed_whole(self) -> bytes:
        return self._as_batch().packed_whole()

    def answered(self, reply: Reply) -> None:
        place = self._place
        if place.ticks == 1 and type(listed(reply)[1]) is int:
            if not self._waiter.done():
                need = self._cost * place.unit
                after = reply[1] - reply[0] + need
                self._waiter.set_result(place.outcomes(need, after))
        else:
            self._as_batch().answered(reply)

    def failed(self, error: StoreError) -> None:
        disappoint((self._waiter,), error)

    def _as_batch(self) -> HitBatch:
        batch = HitBatch(self._place, b"")
        batch.add(self._name, self._key, self._cost, self._waiter)
        return batch


class _Nobody:
    """A waiter that does not wait."""

    def done(self) -> bool:
        return True

    def set_result(self, result: object, /) -> None:
        pass

    def set_exception(self, error: BaseException, /) -> None:
        pass


NOBODY: Final[Waiter] = _Nobody()
_MOST_TAILS: Final = 1_000

Entry = tuple[int, str, list[Waiter]]
"""The cost, the key, and who hits it with that cost."""
