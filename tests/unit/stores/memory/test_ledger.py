"""The ledger of one counter: whose loans are open, and what is to be charged."""

from headgate.stores.memory.leases import MOST_HOLDERS, Account, Ledger, kept_for
from headgate.units import HOUR, MINUTE, SECOND


def lend(ledger: Ledger, holder: str, amount: int, lapses: int, *, is_charged: bool) -> Account:
    account, _ = ledger.open(holder, used=0, told=0)
    account.kept_ns = MINUTE
    ledger.grant(account, amount, expires=lapses, is_charged=is_charged)
    ledger.keep(holder, account, now=0)
    return account


def test_a_holder_is_remembered_for_ten_times_its_loan_within_bounds() -> None:
    assert kept_for(SECOND) == MINUTE
    assert kept_for(MINUTE) == 10 * MINUTE
    assert kept_for(HOUR) == HOUR


def test_nothing_is_looked_at_before_something_is_due() -> None:
    ledger = Ledger()
    lend(ledger, "a", 3, lapses=20, is_charged=False)
    lend(ledger, "b", 4, lapses=10, is_charged=False)
    assert ledger.due == 10
    assert ledger.close_expired(9) == 0
    assert ledger.close_expired(10) == 4
    assert (ledger.due, ledger.holders, ledger.leased) == (20, 1, 3)
    assert ledger.close_expired(20) == 3
    assert (ledger.holders, ledger.leased) == (0, 0)


def test_a_lease_that_lapses_leaves_no_account() -> None:
    ledger = Ledger()
    lend(ledger, "a", 3, lapses=10, is_charged=True)
    assert ledger.close_expired(10) == 0
    assert ledger.is_over(10)


def test_what_was_paid_for_a_lapsed_licence_counts_once() -> None:
    ledger = Ledger()
    lend(ledger, "a", 3, lapses=10, is_charged=False)
    ledger.close_expired(10)
    assert ledger.open("a", used=2, told=0)[1] == 0
    assert ledger.open("a", used=4, told=2)[1] == 2


def test_an_account_is_forgotten_after_its_time() -> None:
    ledger = Ledger()
    account, to_charge = ledger.open("a", used=5, told=0)
    assert to_charge == 5
    account.kept_ns = MINUTE
    ledger.keep("a", account, now=0)
    assert ledger.close_expired(MINUTE - 1) == 0
    assert not ledger.is_over(MINUTE - 1)
    assert ledger.open("a", used=6, told=0)[1] == 1
    assert ledger.close_expired(MINUTE) == 0
    assert ledger.open("a", used=6, told=0)[1] == 6


def test_there_is_room_for_so_many_holders_and_one_that_goes_makes_room() -> None:
    ledger = Ledger()
    for n in range(MOST_HOLDERS):
        assert ledger.has_room_for(f"{n}")
        lend(ledger, f"{n}", 1, lapses=10 + n, is_charged=True)
    assert not ledger.has_room_for("another")
    assert ledger.has_room_for("7")
    ledger.close_expired(10)
    assert ledger.has_room_for("another")
