"""The turn of a leased store, and the quick way, which takes it by hand.

As in `stores.memory.turn`, which says why: the lock is a variable shared by the functions of one
scope. Deleting it takes the turn, assigning it gives it back. Nobody sleeps or does I/O while
having it.
"""
# ruff: noqa: SLF001 (decisions are made by filling their slots: see `decisions.paced`)

from __future__ import annotations

from functools import partial
from time import sleep
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FunctionType

    from headgate.clock import Clock
    from headgate.decisions import Decision
    from headgate.stores.leased.decisions import LoanDecision
    from headgate.stores.leased.loans import Loan
    from headgate.stores.port import Hitter

    Bind = Callable[[dict[str, Loan]], None]
    """Tells a quick way where the loans are."""

_FREE: Final = True
_ONE: Final = 1


class Turn:
    """To be taken before a book is looked at: `take()`, `try: ... finally: give_back()`."""

    __slots__ = ("give_back", "loan_hitter", "take")

    take: Callable[[], None]
    give_back: Callable[[], None]
    loan_hitter: Callable[[type[LoanDecision], Clock, Hitter], tuple[Hitter, Bind]]
    """The quick way: hits from loans; the last argument takes over where there is none."""

    def __init__(self) -> None:
        self.take, self.loan_hitter = _new_turn()
        (shared_variable,) = cast("FunctionType", self.take).__closure__ or ()
        self.give_back = partial(setattr, shared_variable, "cell_contents", _FREE)


def _new_turn() -> tuple[  # noqa: C901 (functions of one scope)
    Callable[[], None], Callable[[type[LoanDecision], Clock, Hitter], tuple[Hitter, Bind]]
]:
    turn = _FREE

    def take() -> None:
        nonlocal turn
        while True:
            try:
                del turn
            except NameError:
                sleep(0)
            else:
                return

    def loan_hitter(
        admitted: type[LoanDecision], read: Clock, slowly: Hitter
    ) -> tuple[Hitter, Bind]:
        loans: dict[str, Loan] = {}

        def bind(new_loans: dict[str, Loan]) -> None:
            nonlocal loans
            loans = new_loans

        def hit(key: str, cost: int = 1) -> Decision:
            nonlocal turn
            if cost is not _ONE and (type(cost) is not int or cost < _ONE):
                return slowly(key, cost)
            now_ns = read()
            while True:
                try:
                    del turn
                except NameError:
                    sleep(0)
                else:
                    break
            try:
                loan = loans[key]
                left = loan.left - cost
                if left >= 0 and now_ns < loan.lapses_ns:
                    loan.left = left
                    facts = loan.facts
                else:
                    left = -1
            except (KeyError, TypeError):
                left = -1
            finally:
                turn = _FREE
            if left < 0:
                return slowly(key, cost)
            decision = admitted()
            decision._key = key
            decision._left = left
            decision._facts = facts
            decision._now_ns = now_ns
            return decision

        return hit, bind

    return take, loan_hitter
