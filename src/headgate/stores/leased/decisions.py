"""Decisions that were made from a loan, kept as the few integers they were made of.

As in `decisions.paced`: the figures are computed when they are read, each limit has a class of its
own, and the quick way fills the slots.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from headgate.decisions import Decision
from headgate.stores.leased.loans import reset_after

if TYPE_CHECKING:
    from headgate.limits import Limit
    from headgate.stores.leased.loans import Facts


class LoanDecision(Decision):
    """A cost that was served from a loan."""

    __slots__ = ("_facts", "_key", "_left", "_now_ns")

    _key: str
    _left: int
    _facts: Facts
    _now_ns: int

    @property
    def allowed(self) -> bool:
        return True

    def __bool__(self) -> bool:
        return True

    @property
    def key(self) -> str:
        return self._key

    @property
    def remaining(self) -> int:
        return self._left + self._facts.elsewhere

    @property
    def retry_after_ns(self) -> int | None:
        return 0

    @property
    def reset_after_ns(self) -> int:
        return reset_after(self.limit, self._facts, self._left, self._now_ns)


@lru_cache(maxsize=1024)
def loan_decisions(the_limit: Limit, the_source: str) -> type[LoanDecision]:
    """The class of the decisions that are made from loans under *the_limit*."""

    class FromLoan(LoanDecision):
        __slots__ = ()

        @property
        def limit(self) -> Limit:
            return the_limit

        @property
        def source(self) -> str:
            return the_source

    return FromLoan
