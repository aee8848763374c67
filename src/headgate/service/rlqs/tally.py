"""What a gateway asks of a bucket and what it uses, from its reports. No I/O.

Reports come every five seconds. A counter that is charged in such lumps would be full before each
and empty after it, and tell nobody anything. So what a gateway is expected to use, going by what
it asked for and was given, is charged ahead as time passes, and put right when the report comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.service.rlqs.filling import MILLION
from headgate.service.rlqs.ledger import NEVER
from headgate.stores.port import LARGEST_AMOUNT
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.service.rlqs.reports import Usage

_LONGEST_AHEAD_NS: Final = 6 * SECOND
_SHORTEST_NS: Final = SECOND // 2
"""Reports that are closer than this are taken for what the gateway says of their time."""


@dataclass(slots=True)
class Tally:
    """*demand* and *usage* are in millionths of a request a second; no *demand* is known before a
    report that is for some time. *heard_ns* is the last report, *asked_ns* the last with
    requests."""

    heard_ns: int
    asked_ns: int
    demand: int | None = None
    usage: int = 0
    _ahead: int = 0
    _carry: int = 0
    _charged_ns: int = NEVER
    _is_new: bool = True

    def heard(self, usage: Usage, now_ns: int) -> int:
        """Take in a report; what is still to be charged for it, or to be given back if negative."""
        allowed = min(usage.allowed, LARGEST_AMOUNT)
        asked = allowed + min(usage.denied, LARGEST_AMOUNT)
        since_ns = now_ns - self.heard_ns
        span_ns = usage.elapsed_ns if self._is_new or since_ns < _SHORTEST_NS else since_ns
        if span_ns > 0:
            self._reckon(asked * MILLION * SECOND // span_ns, allowed * MILLION * SECOND // span_ns)
        if asked:
            self.asked_ns = now_ns
        left = allowed - self._ahead
        self.heard_ns = self._charged_ns = now_ns
        self._ahead = self._carry = 0
        self._is_new = False
        return left

    def expected(self, now_ns: int, given: int) -> int:
        """What is to be charged ahead for the time until *now_ns*: what was asked for, as far as
        the rate *given* (in millionths) allows."""
        if self.demand is None or now_ns - self.heard_ns > _LONGEST_AHEAD_NS:
            return 0
        rate = min(self.demand, given)
        passed_ns = max(now_ns - self._charged_ns, 0)
        self._charged_ns = max(now_ns, self._charged_ns)
        amount, self._carry = divmod(self._carry + rate * passed_ns, MILLION * SECOND)
        self._ahead += amount
        return amount

    def forget_ahead(self) -> int:
        """What was charged ahead since the last report, which is then for others to put right."""
        ahead, self._ahead, self._carry = self._ahead, 0, 0
        return ahead

    def _reckon(self, asked: int, used: int) -> None:
        """Demand that grows is believed at once, demand that falls by halves."""
        self.demand = asked if self.demand is None else max(asked, (asked + self.demand) // 2)
        self.usage = used if self._is_new else (self.usage + used) // 2
