"""Limiters that have a name: what they decide is counted under it, as if it were a rule.

A hit is so quick that even asking whether it is to be counted would be felt. So the verbs of a
limiter with a name are replaced by others that count; one without has only its own.
"""

from __future__ import annotations

from bisect import bisect_left
from random import random
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, Protocol

from headgate.errors import OptionError
from headgate.observability.journal import BOUNDS_NS, JOURNAL, Decided, Said

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headgate.observability.journal import Cell, Outcome


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


SPREAD: Final = 31
"""Of the decisions of a limiter one of up to so many, at random, is looked at closely."""


class DecisionNotes:
    """Records what is decided about the limit called *rule*.

    Each decision is counted. One of up to `SPREAD` is also counted for the keys with most requests
    and most denials, and stands for all since the one before; `wrap` times only those. So a name
    adds 0.3 us to a decision in memory, where recording each in full took 0.8 us.
    """

    __slots__ = ("_cells", "_gap", "_rule", "_skipped")

    def __init__(self, rule: str) -> None:
        self._rule = rule
        self._cells: tuple[dict[str, Cell], dict[str, Cell]] = {}, {}
        self._cells[True]["store"] = JOURNAL.cell(rule, "allowed", "store")
        self._skipped = self._gap = 0

    def note(self, decision: Answered, key: str, cost: int, began_ns: int) -> bool:
        """Record a decision that began at *began_ns*, by `perf_counter_ns`.

        Returns True if it allows.
        """
        journal = JOURNAL
        took_ns = perf_counter_ns() - began_ns
        journal.latency[bisect_left(BOUNDS_NS, took_ns)] += 1
        journal.latency_ns += took_ns
        allowed = decision.allowed
        cell = self._cells[allowed].get(decision.source)
        if cell is None or self._skipped >= self._gap or journal.has_listeners:
            self.count(decision, key, cost, took_ns)
            return allowed
        self._skipped += 1
        cell[0] += 1
        journal.requests[allowed][0] += 1
        return allowed

    def count(self, decision: Answered, key: str, cost: int, took_ns: int) -> None:
        """Record a decision that a caller waited for: that is not the time that it took."""
        self._tally(decision)
        self._skipped += 1
        if self._skipped > self._gap:
            JOURNAL.sample_gap(self._rule, key, self._skipped, is_denied=not decision.allowed)
            self._skipped, self._gap = 0, _random_gap()
        self._report(decision, key, cost, took_ns)

    def wrap(self, decide: Callable[[str, int], Any]) -> Callable[..., Any]:
        """Return *decide*, which mostly answers at once, with its decisions recorded."""
        journal, requests, cells, tally = JOURNAL, JOURNAL.requests, self._cells, self._tally
        untimed = gap = 0

        def hit(key: str, cost: int = 1) -> Any:
            nonlocal untimed, gap
            if untimed < gap and not journal.has_listeners:
                decision = decide(key, cost)
                untimed += 1
                allowed = decision.allowed
                cell = cells[allowed].get(decision.source)
                if cell is None:
                    tally(decision)
                else:
                    cell[0] += 1
                    requests[allowed][0] += 1
                return decision
            began_ns = perf_counter_ns()
            decision = decide(key, cost)
            took_ns = perf_counter_ns() - began_ns
            tally(decision)
            journal.time(took_ns, untimed + 1)
            journal.sample_gap(self._rule, key, untimed + 1, is_denied=not decision.allowed)
            untimed, gap = 0, _random_gap()
            self._report(decision, key, cost, took_ns)
            return decision

        return hit

    def _tally(self, decision: Answered) -> None:
        allowed, source = decision.allowed, decision.source
        cell = self._cells[allowed].get(source)
        if cell is None:
            cell = JOURNAL.cell(self._rule, "allowed" if allowed else "denied", source)
            self._cells[allowed][source] = cell
        cell[0] += 1
        JOURNAL.requests[allowed][0] += 1

    def _report(self, decision: Answered, key: str, cost: int, took_ns: int) -> None:
        """Report *decision* to the listeners, if there are any."""
        allowed, source = decision.allowed, decision.source
        if JOURNAL.is_heard(refuses=not allowed):
            outcome: Outcome = "allowed" if allowed else "denied"
            wait_ns = decision.retry_after_ns
            said = Said(self._rule, outcome, source, key, cost, decision.remaining, wait_ns)
            JOURNAL.tell(Decided(allowed, source, 0, took_ns, (said,)))


def _random_gap() -> int:
    """Return the number of decisions to skip until the next one that is looked at closely."""
    return int(random() * SPREAD)  # noqa: S311 (not a secret)


_VERBS: Final = ("hit", "acquire", "hit_up_to", "hit_many", "hit_all", "reserve", "_enter")


class _Counted:
    """The verbs of *limiter* as they are, and what notes what they decide under *name*.

    *quick* is its hit, if most are decided in this process: one that waits for no reply, and raises
    no error.
    """

    __slots__ = ("count", "enter", "every", "hold", "many", "note", "one", "part", "quick", "wait")

    def __init__(self, limiter: Any, name: object, quick: Callable[[str, int], Any] | None) -> None:
        if not isinstance(name, str) or not name or not name.isprintable():
            raise OptionError(
                f"name is {name!r}; expected what its decisions are counted under, as text"
            )
        notes = DecisionNotes(name)
        self.note, self.count = notes.note, notes.count
        self.quick = None if quick is None else notes.wrap(quick)
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

    def verbs(self) -> dict[str, Callable[..., Any]]:
        return super().verbs() | ({} if self.quick is None else {"hit": self.quick})

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
        if self.quick is not None:
            return self.quick(key, cost)
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
