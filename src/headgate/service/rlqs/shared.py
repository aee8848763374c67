"""A counter that gateways of this replica have parts of, and its turns on the board."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headgate.errors import StoreError
from headgate.service.rlqs.ledger import NEVER, Ledger
from headgate.service.rlqs.rates import fitted
from headgate.service.rlqs.turn import Standing, Turned, turn
from headgate.units import SECOND

if TYPE_CHECKING:
    from fractions import Fraction

    from headgate.clock import Clock
    from headgate.service.rlqs.gateway import Part
    from headgate.service.rlqs.options import RlqsOptions
    from headgate.service.rlqs.rates import Allowance


UNKNOWN: Final = -1
"""In place of when something was made: what the gateway has is not what the board says."""


class SharedCounter:
    """The parts that gateways of this replica have of the ledger *name*, by their names.

    *whole* is what there is to divide until a part says otherwise.
    """

    def __init__(self, name: str, whole: Allowance, board: Board, options: RlqsOptions) -> None:
        self.name = name
        self._whole = whole
        self.parts: dict[str, Part] = {}
        self.due_ns = NEVER
        self.usage = 0
        """What all gateways use of it, in millionths of a request a second."""
        self._board = board
        self._options = options
        self._gone: set[str] = set()
        self._abandoned: set[str] = set()
        self._lock = asyncio.Lock()

    @property
    def is_over(self) -> bool:
        """Whether nobody here has a part of it, and the board knows that."""
        return not (self.parts or self._gone or self._abandoned)

    def join(self, part: Part) -> None:
        part.made_ns = NEVER
        self.parts[part.name] = part
        self.due_ns = NEVER

    def leave(self, part: Part, *, is_replaced: bool) -> None:
        """*part* is no more. What it had ends with its time, or at once if it *is_replaced*.

        One that the board does not know is forgotten: there may be no end of them while the board
        is out of reach.
        """
        if self.parts.pop(part.name, None) is not None and part.made_ns > NEVER:
            (self._abandoned if is_replaced else self._gone).add(part.name)
            self.due_ns = NEVER

    async def take_turn(self, now_ns: int, left: Fraction) -> bool:
        """Divide what there is, *left* being the part of it that is for gateways, and tell them.

        Whether the board could be asked.
        """
        async with self._lock:
            gone, abandoned = frozenset(self._gone), frozenset(self._abandoned)
            try:
                turned = await self._turned(left, gone, abandoned)
            except StoreError:
                self.go_on_alone(now_ns)
                return False
            self._gone -= gone
            self._abandoned -= abandoned
            self.due_ns = now_ns + turned.due_ns - turned.ledger.at_ns
            self.usage = sum(one.usage for one in turned.ledger.claims.values())
            for name, filling in turned.told.items():
                part = self.parts.get(name)
                if part is None:
                    self._gone.add(name)  # it left meanwhile
                else:
                    part.made_ns = turned.ledger.claims[name].made_ns
                    part.tell(filling)
            return True

    async def _turned(
        self, left: Fraction, gone: frozenset[str], abandoned: frozenset[str]
    ) -> Turned:
        allowance = self._allowance()
        standings = {
            name: Standing(part.tally.demand, part.tally.usage, part.made_ns)
            for name, part in self.parts.items()
        }

        def step(ledger: Ledger | None, now_ns: int, opens_ns: int) -> Turned:
            return turn(
                ledger,
                now_ns,
                allowance=allowance,
                left=left,
                standings=standings,
                options=self._options,
                gone=gone,
                abandoned=abandoned,
                opens_ns=opens_ns,
            )

        return await self._board.take(self.name, step)

    def _allowance(self) -> Allowance:
        for part in self.parts.values():
            self._whole = part.terms.bindings[0].allowance
            break
        return self._whole

    def go_on_alone(self, now_ns: int) -> None:
        """The board cannot be asked: each rule says what to do then.

        Under `fail_closed` nothing passes when the time of what a gateway has is over. Else it goes
        on with what it has, and one that has nothing gets the whole limit for itself.
        """
        self.due_ns = now_ns + SECOND
        half_ns = self._options.ttl_ns // 2
        for part in self.parts.values():
            if part.told_ns != NEVER and now_ns - part.told_ns < half_ns:
                continue
            binding = part.terms.bindings[0]
            if binding.rule.on_failure.mode == "fail_closed":
                part.made_ns = UNKNOWN
                part.tell(None)
                continue
            if part.told is None:
                part.made_ns = UNKNOWN
                whole = binding.allowance
                part.tell(fitted(whole.rate, whole.burst))
                continue
            part.tell(part.told)


# Where ledgers are kept: the port, and the board of a service that is alone.


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
