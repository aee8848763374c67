"""Limiters that have a name: what they decide is counted under it, as if it were a rule.

A hit is so quick that even asking whether it is to be counted would be felt. So the verbs of a
limiter with a name are replaced by others that count; one without has only its own.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import OptionError
from headgate.observability.journal import JOURNAL
from headgate.observability.single import DecisionNotes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headgate.observability.single import Answered

_VERBS: Final = ("hit", "acquire", "hit_many", "hit_all", "reserve", "_enter")


class _Counted:
    """The verbs of *limiter* as they are, and what notes what they decide under *name*."""

    __slots__ = ("count", "enter", "every", "hold", "many", "note", "one", "wait")

    def __init__(self, limiter: Any, name: object) -> None:
        if not isinstance(name, str) or not name or not name.isprintable():
            raise OptionError(
                f"name is {name!r}; expected what its decisions are counted under, as text"
            )
        notes = DecisionNotes(name)
        self.note, self.count = notes.note, notes.count
        self.one, self.wait, self.many = limiter.hit, limiter.acquire, limiter.hit_many
        self.every, self.hold = limiter.hit_all, limiter.reserve
        self.enter = limiter._enter  # noqa: SLF001 (what its slots ask with)

    def verbs(self) -> dict[str, Callable[..., Any]]:
        """Those that take the places of the limiter's own, by their names."""
        return {name: getattr(self, name) for name in _VERBS}

    def note_many(
        self, asked: list[tuple[str, int]], decisions: list[Answered], took_ns: int
    ) -> None:
        """Note decisions of one round trip: it is one decision, as far as time goes."""
        if decisions:
            JOURNAL.time(took_ns)
        for (key, cost), decision in zip(asked, decisions, strict=True):
            self.count(decision, key, cost, took_ns)


class CountedVerbs(_Counted):
    """The verbs of a `RateLimiter` that decide, counted under *name*."""

    __slots__ = ()

    def hit(self, key: str, cost: int = 1) -> Any:
        """As `RateLimiter.hit`."""
        began_ns = perf_counter_ns()
        decision = self.one(key, cost)
        self.note(decision, key, cost, began_ns)
        return decision

    def acquire(self, key: str, cost: int = 1, timeout: float | None = None) -> Any:
        """As `RateLimiter.acquire`."""
        began_ns = perf_counter_ns()
        decision = self.wait(key, cost, timeout)
        self.count(decision, key, cost, perf_counter_ns() - began_ns)
        return decision

    def hit_many(self, asked: Iterable[str | tuple[str, int]]) -> Any:
        """As `RateLimiter.hit_many`."""
        pairs, began_ns = _pairs(asked), perf_counter_ns()
        decisions = self.many(pairs)
        self.note_many(pairs, decisions, perf_counter_ns() - began_ns)
        return decisions

    def hit_all(self, hits: Iterable[Any]) -> Any:
        """As `RateLimiter.hit_all`."""
        asked, began_ns = list(hits), perf_counter_ns()
        decision = self.every(asked)
        self.note(decision, decision.key, sum(hit.cost for hit in asked), began_ns)
        return decision

    def reserve(self, key: str, cost: int, ttl: Any = 60) -> Any:
        """As `RateLimiter.reserve`."""
        began_ns = perf_counter_ns()
        held = self.hold(key, cost, ttl)
        self.note(held.decision, key, cost, began_ns)
        return held

    def _enter(self, stack: Any, key: str, lease: str) -> Any:
        """A slot is asked for."""
        began_ns = perf_counter_ns()
        decision = self.enter(stack, key, lease)
        self.note(decision, key, 1, began_ns)
        return decision


class CountedAsyncVerbs(_Counted):
    """The same of an `AsyncRateLimiter`. Who is cancelled while asking is not counted."""

    __slots__ = ()

    async def hit(self, key: str, cost: int = 1) -> Any:
        """As `AsyncRateLimiter.hit`."""
        began_ns = perf_counter_ns()
        decision = await self.one(key, cost)
        self.note(decision, key, cost, began_ns)
        return decision

    async def acquire(self, key: str, cost: int = 1, timeout: float | None = None) -> Any:  # noqa: ASYNC109 (that of the limiter)
        """As `AsyncRateLimiter.acquire`."""
        began_ns = perf_counter_ns()
        decision = await self.wait(key, cost, timeout)
        self.count(decision, key, cost, perf_counter_ns() - began_ns)
        return decision

    async def hit_many(self, asked: Iterable[str | tuple[str, int]]) -> Any:
        """As `AsyncRateLimiter.hit_many`."""
        pairs, began_ns = _pairs(asked), perf_counter_ns()
        decisions = await self.many(pairs)
        self.note_many(pairs, decisions, perf_counter_ns() - began_ns)
        return decisions

    async def hit_all(self, hits: Iterable[Any]) -> Any:
        """As `AsyncRateLimiter.hit_all`."""
        asked, began_ns = list(hits), perf_counter_ns()
        decision = await self.every(asked)
        self.note(decision, decision.key, sum(hit.cost for hit in asked), began_ns)
        return decision

    async def reserve(self, key: str, cost: int, ttl: Any = 60) -> Any:
        """As `AsyncRateLimiter.reserve`."""
        began_ns = perf_counter_ns()
        held = await self.hold(key, cost, ttl)
        self.note(held.decision, key, cost, began_ns)
        return held

    async def _enter(self, stack: Any, key: str, lease: str) -> Any:
        """A slot is asked for."""
        began_ns = perf_counter_ns()
        decision = await self.enter(stack, key, lease)
        self.note(decision, key, 1, began_ns)
        return decision


def _pairs(asked: Iterable[str | tuple[str, int]]) -> list[tuple[str, int]]:
    return [(one, 1) if isinstance(one, str) else one for one in asked]
