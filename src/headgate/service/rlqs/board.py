"""Where ledgers are kept: the port, and the board of a service that is alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headgate.service.rlqs.ledger import NEVER, Ledger
from headgate.service.rlqs.turn import Turned

if TYPE_CHECKING:
    from headgate.clock import Clock
    from headgate.service.rlqs.options import RlqsOptions

Step = Callable[[Ledger | None, int, int], Turned]
"""One turn: from a ledger (None: there is none), the time and what `opens_ns` a new ledger has.

It may be called more than once for one turn, so it must not change anything.
"""

_SWEEP: Final = 1_024


class Board(ABC):
    """Ledgers by name, each changed by one turn at a time, whoever takes it."""

    @abstractmethod
    async def take(self, name: str, step: Step) -> Turned:
        """Take a turn over the ledger *name*; what came of it, which is then in force.

        Raises `StoreError` if it could not be, or nobody knows.
        """

    async def aclose(self) -> None:  # noqa: B027 (most boards hold nothing open)
        """Give back what the board holds open."""


class MemoryBoard(Board):
    """The board of a service that is alone, on *clock*.

    Who starts does not know what the one before it has assigned. For as long as that may be in
    force, new ledgers give out only a part (see `RlqsOptions.restart_share`): then all that is
    admitted is at most 1 + that part of what the limit allows, and afterwards what it allows.
    """

    def __init__(self, clock: Clock, options: RlqsOptions) -> None:
        self._clock = clock
        self._opens_ns = clock() + options.ttl_ns + options.delivery_ns
        self._ledgers: dict[str, Turned] = {}
        self._turns = 0

    async def take(self, name: str, step: Step) -> Turned:
        now_ns = self._clock()
        self._turns += 1
        if self._turns % _SWEEP == 0:
            self._forget(now_ns)
        before = self._ledgers.get(name)
        opens_ns = self._opens_ns if now_ns < self._opens_ns else NEVER
        turned = step(None if before is None else before.ledger, now_ns, opens_ns)
        self._ledgers[name] = turned
        return turned

    def _forget(self, now_ns: int) -> None:
        self._ledgers = {
            name: turned for name, turned in self._ledgers.items() if turned.as_new_ns > now_ns
        }
