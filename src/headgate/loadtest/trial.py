"""A load test as a whole: what was asked for, what was seen, what is to be said."""

from __future__ import annotations

import time
from dataclasses import dataclass
from fractions import Fraction
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from headgate.loadtest.answers import AnswerReader
from headgate.loadtest.judgement import CLOCK_ERROR_NS, Clocks, Judgement, judge
from headgate.loadtest.loads import Load
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.loadtest.aims import Aim
    from headgate.loadtest.client import Sender
    from headgate.loadtest.record import Record
    from headgate.loadtest.targets import Target

FAR_CLOCK_ERROR_NS: Final = SECOND
"""By how much the clock of another machine may tell another time."""

_BASELINE_NS: Final = 2 * SECOND
_BASELINE_RATE: Final = Fraction(200)


@dataclass(frozen=True, slots=True)
class Trial:
    """*load* on *target*, at *addresses*, to find out whether it is limited as *aim* says.

    *admitted* are statuses that count as admitted besides 200 to 299; *baseline* is a path of the
    same server that is not limited, to compare with; *is_verified*: certificates have to be good.
    """

    target: Target
    addresses: tuple[str, ...]
    aim: Aim
    load: Load
    admitted: frozenset[int] = frozenset()
    baseline: str | None = None
    clock_error_ns: int = CLOCK_ERROR_NS
    is_verified: bool = True

    def sender(self) -> Sender:
        """What sends the load. Raises `MissingPackageError` without aiohttp."""
        from headgate.loadtest.client import Sender

        run = token_hex(4)
        targets = [self.target.of(caller, run) for caller in range(self.load.callers)]
        reader = AnswerReader(self.aim, admitted=self.admitted)
        return Sender(targets, self.addresses, self.load, reader, is_verified=self.is_verified)

    def baseline_sender(self) -> Sender | None:
        """What asks for the baseline first, for two seconds at most; None if none is wanted."""
        from headgate.loadtest.client import Sender

        if self.baseline is None:
            return None
        rate = min(self.load.rate, _BASELINE_RATE)
        load = Load(rate, min(self.load.duration_ns, _BASELINE_NS), 1, self.load.connections)
        target = self.target.at(self.baseline).of(0, token_hex(4))
        reader = AnswerReader(self.aim, admitted=self.admitted)
        return Sender([target], self.addresses, load, reader, is_verified=self.is_verified)

    def judge(self, record: Record) -> Judgement:
        """What is to be said after *record*."""
        offset_ns = time.time_ns() - time.monotonic_ns()
        return judge(record, self.aim, Clocks(offset_ns, self.clock_error_ns))
