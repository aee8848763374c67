"""A place in the queue of a gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.rules.soft import Priority
    from headgate.shaping.gates.fair_queue import Item
    from headgate.shaping.gates.turns import Turn


class Place:
    """One that waits, and in the end what came of it."""

    __slots__ = ("asked_ns", "deadline_ns", "item", "priority", "turn", "wake", "weight")

    def __init__(
        self,
        item: Item,
        weight: int,
        priority: Priority,
        asked_ns: int,
        deadline_ns: int | None,
    ) -> None:
        self.item = item
        self.weight = weight
        self.priority = priority
        self.asked_ns = asked_ns
        self.deadline_ns = deadline_ns
        self.turn: Turn | None = None
        self.wake: Callable[[Turn | None], object] | None = None
        """Told the turn; or None, when it should look for itself."""
