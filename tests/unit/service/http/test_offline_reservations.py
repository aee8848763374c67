"""Reservations granted while the store was gone: charged when they are settled, once."""

from __future__ import annotations

import pytest

from headgate.service.http import HttpApp
from headgate.service.settlement import MAX_GRANTED, OfflineReservations
from headgate.stores.operations import Take, TakeEach
from headgate.testing import ManualClock
from tests.support.http_app import START, FakeStore, core_of
from tests.unit.service.http.test_reservations import TOKENS, cancel, commit, left, reserve


class Worker:
    """A worker whose store is gone; of several *beside* each other the counters are the same."""

    def __init__(self, beside: Worker | None = None) -> None:
        self.clock: ManualClock = ManualClock(START) if beside is None else beside.clock
        self.store = FakeStore(self.clock)
        if beside is not None:
            self.store.inner = beside.store.inner
        self.store.is_gone = self.store.is_undone = True
        self.store.reason = "refused"  # of which no breaker takes notice
        core = core_of(TOKENS, clock=self.clock, store=self.store)
        self.app, self.fallback = HttpApp(core), core.rules.engine.fallback

    def reserve(self, cost: int = 30) -> str:
        answer = reserve(self.app, {"tokens": cost}, ttl=60)
        assert (answer.status, answer.json["source"]) == (201, "fail_open")
        return str(answer.json["id"])

    def come_back(self) -> None:
        """The store is there, and is told all that it is owed."""
        self.store.is_gone = False
        owed = self.fallback._unreported.pop(100)
        self.store.inner.run(TakeEach(tuple(Take((check,)) for check in owed)))

    @property
    def counted(self) -> int:
        """What this process counts of the tokens."""
        local = self.fallback.local
        (group,) = [group for group in local.groups() if "tokens" in group]
        return sum(local.used_in(group, key) for key in local.keys_in(group, most=10))


@pytest.mark.parametrize("is_granted_here", [True, False])
@pytest.mark.parametrize("actual", [0, 12, 30, 45])
def test_what_it_really_cost_is_charged_in_the_store_if_that_is_back(
    *, is_granted_here: bool, actual: int
) -> None:
    here = Worker()
    there = Worker(here)
    name = here.reserve()
    settling = here if is_granted_here else there
    settling.store.is_gone = False
    assert commit(settling.app, name, {"cost": actual}).json == {"charged": {"tokens": actual}}
    assert left(settling.app) == 100 - actual
    assert here.counted == (actual if is_granted_here else 30)


@pytest.mark.parametrize("is_granted_here", [True, False])
def test_without_the_store_it_is_charged_here_and_told_afterwards(*, is_granted_here: bool) -> None:
    here = Worker()
    there = Worker(here)
    name = here.reserve()
    settling = here if is_granted_here else there
    assert commit(settling.app, name, {"cost": 45}).status == 200
    assert settling.counted == 45
    settling.come_back()
    assert left(settling.app) == 55


@pytest.mark.parametrize("comes_back", [True, False])
def test_it_is_settled_once(*, comes_back: bool) -> None:
    here = Worker()
    there = Worker(here)
    name = here.reserve()
    here.store.is_gone = not comes_back
    assert commit(here.app, name, {"cost": 10}).status == 200
    assert commit(here.app, name, {"cost": 10}).status == 409
    assert cancel(here.app, name).status == 409
    here.come_back()
    there.store.is_gone = False
    assert commit(there.app, name, {"cost": 10}).status == 409
    assert left(there.app) == 90


def test_cancelling_charges_nothing() -> None:
    here = Worker()
    name = here.reserve()
    assert cancel(here.app, name).status == 204
    assert here.counted == 0
    here.come_back()
    assert left(here.app) == 100


def test_a_lapsed_one_charges_nothing() -> None:
    here = Worker()
    name = here.reserve()
    here.store.is_gone = False
    here.clock.advance(61)
    assert commit(here.app, name, {"cost": 10}).status == 410
    assert left(here.app) == 100


def test_who_cannot_know_whether_the_store_heard_it_is_told_so() -> None:
    here = Worker()
    name = here.reserve()
    here.store.is_undone = False
    assert commit(here.app, name, {"cost": 10}).status == 503
    here.store.is_gone = False
    assert commit(here.app, name, {"cost": 10}).status == 200
    assert left(here.app) == 90


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_GRANTED >= 1_000
    monkeypatch.setattr("headgate.service.settlement.MAX_GRANTED", 2)
    here = Worker()
    names = [here.reserve(10) for _ in range(3)]
    unheld = _unheld(here)
    assert len(unheld._granted) == 2
    here.store.is_gone = False
    for name in names:
        commit(here.app, name, {"cost": 1})
    assert here.counted == 10 + 1 + 1
    assert not unheld._granted
    assert left(here.app) == 97


def _unheld(worker: Worker) -> OfflineReservations:
    return worker.app._reservations._settlements._offline
