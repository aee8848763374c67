"""Limiters that have a name: what they decide is counted under it, as if it were a rule.

A hit is so quick that even asking whether it is to be counted would be felt. So the verbs of a
limiter with a name are replaced by others that count; one without has only its own.
"""

from __future__ import annotations

from bisect import bisect_left
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, Protocol

from headgate.errors import OptionError
from headgate.observability.journal import BOUNDS_NS, JOURNAL, Decided, Said

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headgate.observability.journal import Outcome


# Notes of what is decided about one limit with a name, where no policy is asked.


class Answered(Protocol):
    """What a `Decision` has of what is noted."""

    @property
    def allowed(self) -> bool: ...
    @property
    def source(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def remaining(self) -> int: ...
    @property
    def retry_after_ns(self) -> int | None: ...


class DecisionNotes:
    """Notes what is decided about the limit called *rule*."""

    __slots__ = ("_admitted", "_rule")

    def __init__(self, rule: str) -> None:
        self._rule = rule
        self._admitted = JOURNAL.cell(rule, "allowed", "store")

    def note(self, decision: Answered, key: str, cost: int, began_ns: int) -> bool:
        """Note a *decision* about *key* that was asked for at *began_ns*, by `perf_counter_ns`;
        whether it allows."""
        journal = JOURNAL
        took_ns = perf_counter_ns() - began_ns
        journal.latency[bisect_left(BOUNDS_NS, took_ns)] += 1
        journal.latency_ns += took_ns
        allowed = decision.allowed
        if not allowed or journal.listeners or decision.source != "store":
            self.count(decision, key, cost, took_ns)
            return allowed
        journal.requests[True][0] += 1
        self._admitted[0] += 1
        journal.until_sampled -= 1
        if journal.until_sampled <= 0:
            journal.sample(self._rule, key)
        return True

    def count(self, decision: Answered, key: str, cost: int, took_ns: int) -> None:
        """The same of one that was waited for, which says nothing of how quickly it is decided."""
        journal, rule = JOURNAL, self._rule
        allowed, source = decision.allowed, decision.source
        outcome: Outcome = "allowed" if allowed else "denied"
        journal.requests[allowed][0] += 1
        journal.note(rule, outcome, source, key)
        if journal.is_heard(refuses=not allowed):
            said = Said(
                rule, outcome, source, key, cost, decision.remaining, decision.retry_after_ns
            )
            journal.tell(Decided(allowed, source, 0, took_ns, (said,)))


_VERBS: Final = ("hit", "acquire", "hit_up_to", "hit_many", "hit_all", "reserve", "_enter")


class _Counted:
    """The verbs of *limiter* as they are, and what notes what they decide under *name*."""

    __slots__ = ("count", "enter", "every", "hold", "many", "note", "one", "part", "wait")

    def __init__(self, limiter: Any, name: object) -> None:
        if not isinstance(name, str) or not name or not name.isprintable():
            raise OptionError(
                f"name is {name!r}; expected what its decisions are counted under, as text"
            )
        notes = DecisionNotes(name)
        self.note, self.count = notes.note, notes.count
        self.one, self.wait, self.many = limiter.hit, limiter.acquire, limiter.hit_many
        self.every, self.hold, self.part = limiter.hit_all, limiter.reserve, limiter.hit_up_to
        self.enter = limiter._enter  # noqa: SLF001 (what its slots ask with)

    def verbs(self) -> dict[str, Callable[..., Any]]:
        """Those that take the places of the limiter's own, by their names."""
        return {name: getattr(self, name) for name in _VERBS}

    def note_part(self, part: Any, key: str, n: int, began_ns: int) -> None:
        """Note a hit of up to *n* as allowed if a part of it was, with the cost of that part."""
        if part.granted:
            decision = part.decision._replace(allowed=True, retry_after_ns=0)
            self.note(decision, key, part.granted, began_ns)
        else:
            self.note(part.decision, key, n, began_ns)

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

    def hit_up_to(self, key: str, n: int) -> Any:
        """As `RateLimiter.hit_up_to`."""
        began_ns = perf_counter_ns()
        part = self.part(key, n)
        self.note_part(part, key, n, began_ns)
        return part

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

    async def hit_up_to(self, key: str, n: int) -> Any:
        """As `AsyncRateLimiter.hit_up_to`."""
        began_ns = perf_counter_ns()
        part = await self.part(key, n)
        self.note_part(part, key, n, began_ns)
        return part

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
