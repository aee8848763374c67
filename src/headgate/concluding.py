"""What both limiters make of a reply, or of its absence: all of it without I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.errors import StoreError
from headgate.fallback import Asked
from headgate.stores.port import conclude

if TYPE_CHECKING:
    from headgate.decisions import Decision
    from headgate.fallback import Fallback
    from headgate.plan import Stack
    from headgate.stores.operations import Charge, Check, Hold, Outcomes, Refund, Take
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
