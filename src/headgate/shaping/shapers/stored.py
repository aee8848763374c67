"""Turns over a store: what both shapers ask it, and make of its replies. No I/O but the fallback.

A turn is a delay that the store told, on its own clock: the callers of a fleet need not agree on
the time. The delay is counted from when the reply is there. The store gave it a moment before, so
nobody goes early, and everybody is late by the way back alone, those without a delay as well:
between two that leave only the difference of their ways is lost. Counted from when the question was
sent, the way there would be slept through too little, and two could leave too close.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headgate.fallback import HERE, Asked
from headgate.stores.operations import Check, Reset, Take, Vacate
from headgate.stores.port import conclude

if TYPE_CHECKING:
    from headgate.clock import Clock
    from headgate.decisions import Decision
    from headgate.errors import StoreError
    from headgate.fallback import Fallback
    from headgate.shaping.shapers.terms import Terms
    from headgate.stores.operations import Outcomes


class Stored:
    """A shaper over a store, as far as it does not matter whether it blocks."""

    def __init__(self, terms: Terms, fallback: Fallback, clock: Clock | None) -> None:
        self.terms = terms
        self.fallback = fallback
        self.clock = clock or time.time_ns
        """For what is told in seconds since the epoch; of a store elsewhere, that of this host."""

    def conclude(self, take: Take, outcomes: Outcomes) -> Decision:
        """What the store said."""
        if self.fallback.wants_word:
            self.fallback.succeed()
        return conclude(take.checks, outcomes)

    def decide_without(self, take: Take, error: StoreError) -> Decision:
        """What is decided here, as the store could not."""
        return self.fallback.answer(take, self.terms.on_failure, error)

    def vacating(self, check: Check, granted: Decision) -> Vacate:
        """How the store is told that a turn is given up."""
        return Vacate((check,), (granted.turn_ns,))

    def is_from_here(self, granted: Decision) -> bool:
        """Whether a turn was given by this process, and the store knows nothing of it."""
        return granted.source in HERE

    def vacate_here(self, check: Check, granted: Decision) -> bool:
        """Give up a turn that was given by this process."""
        asked = Asked((check,), self.terms.on_failure)
        return self.fallback.vacate(asked, (granted.turn_ns,))

    def resetting(self, key: str) -> Reset:
        return Reset((self.terms.check(key, 0),))

    def forget(self, reset: Reset) -> None:
        """The store has forgotten: so does what stands in for it."""
        self.fallback.reset(Asked(reset.checks, self.terms.on_failure))
