"""What both limiters make of a reply, or of its absence: all of it without I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.errors import StoreError
from headgate.fallback import HERE, Asked
from headgate.limits import LeakyQueue
from headgate.stores.operations import Refund, Vacate
from headgate.stores.port import conclude

if TYPE_CHECKING:
    from headgate.decisions import Decision
    from headgate.fallback import Fallback
    from headgate.plan import Stack
    from headgate.stores.operations import Charge, Check, Hold, Outcomes, Take
    from headgate.stores.port import Hitter

    Deciding = Take | Hold | Charge | Refund


class Concluding:
    """A limiter, as far as it does not matter whether it blocks."""

    _stack: Stack
    _fallback: Fallback

    def _conclude(self, operation: Deciding, reply: Outcomes | StoreError) -> Decision:
        if isinstance(reply, StoreError):  # of several takes one may have failed alone
            return self._without_store(operation, reply)
        if self._fallback.wants_word:
            self._fallback.succeed()
        return conclude(operation.checks, reply)

    def _without_store(self, operation: Deciding, error: StoreError) -> Decision:
        return self._fallback.answer(operation, self._stack.on_failure, error)

    def _asked(self, checks: tuple[Check, ...]) -> Asked:
        return Asked(checks, self._stack.on_failure)

    def _giving_back(self, key: str, cost: int, granted: Decision) -> list[Refund | Vacate]:
        """What the store is to be told when nothing comes of what it *granted*: turns that have not
        come are given up, all else is refunded. What this process granted is given back at once."""
        steps: list[Refund | Vacate] = list(self._vacating(key, cost, granted))
        checks = [c for c in self._stack.checks(key, cost) if not isinstance(c.limit, LeakyQueue)]
        if granted.source in HERE:
            self._fallback.give_back(self._asked(tuple(checks)))
        elif checks:
            steps.append(Refund(tuple(checks)))
        return steps

    def _vacating(self, key: str, cost: int, granted: Decision) -> list[Vacate]:
        """The same for turns alone; an empty list if there are none that the store knows of."""
        if not granted.delay_ns:
            return []
        parts = zip(self._stack.checks(key, cost), granted.limits, strict=True)
        turns = [(check, part.turn_ns) for check, part in parts if part.turn_ns]
        checks, turns_ns = tuple([c for c, _ in turns]), tuple([turn for _, turn in turns])
        if granted.source not in HERE:
            return [Vacate(checks, turns_ns)]
        self._fallback.vacate(self._asked(checks), turns_ns)
        return []

    def _guarded(self, hitter: Hitter) -> Hitter:
        """*hitter*, with what is to be done when it fails, or no longer does."""
        fallback = self._fallback

        def hit(key: str, cost: int = 1) -> Decision:
            try:
                decision = hitter(key, cost)
            except StoreError as error:
                return self._without_store(self._stack.take(key, cost), error)
            if fallback.wants_word:
                fallback.succeed()
            return decision

        return hit
