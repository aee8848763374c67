"""Boards: what is remembered, for how long, and what happens without one."""

from __future__ import annotations

import asyncio
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from headgate.errors import StoreError
from headgate.service.rlqs import MemoryLedgerStore, RlqsOptions
from headgate.service.rlqs.allocation import GatewayState, allocate
from headgate.service.rlqs.rates import Allowance
from headgate.service.rlqs.shared import LedgerStore
from headgate.testing import ManualClock
from tests.support.rlqs_gateways import PER_USER, Line, Service

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from headgate.service.rlqs.allocation import Allocation
    from headgate.service.rlqs.ledger import Ledger
    from headgate.service.rlqs.shared import Step

ADA = {"user": "ada"}
FIRST = (ADA, 0, 1, 0)
OPTIONS = RlqsOptions()


def run(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scene())


def _step(ledger: Ledger | None, now_ns: int, opens_ns: int) -> Allocation:
    return allocate(
        ledger,
        now_ns,
        allowance=Allowance(Fraction(10), 10),
        states={"a": GatewayState(None)},
        options=OPTIONS,
        opens_ns=opens_ns,
    )


def test_ledgers_that_are_as_new_are_forgotten() -> None:
    async def scene() -> None:
        clock = ManualClock(1_000)
        board = MemoryLedgerStore(clock, OPTIONS)
        for n in range(500):
            await board.update(str(n), _step)
        clock.advance(60)
        for n in range(1_100):
            await board.update(f"again-{n % 10}", _step)
        assert set(board._ledgers) <= {f"again-{n}" for n in range(10)}

    run(scene)


class _ShakyBoard(LedgerStore):
    """A board that can be out of reach; *loses_replies*: it does what it is asked, unheard."""

    def __init__(self, clock: ManualClock) -> None:
        self.board = MemoryLedgerStore(clock, OPTIONS)
        self.is_there = True
        self.loses_replies = False
        self.is_closed = False

    async def update(self, name: str, step: Step) -> Allocation:
        if not self.is_there:
            raise StoreError("it is gone")
        allocation = await self.board.update(name, step)
        if self.loses_replies:
            raise StoreError("it did not say")
        return allocation

    async def aclose(self) -> None:
        self.is_closed = True


def _service(on_store_failure: str) -> tuple[Service, _ShakyBoard]:
    clock = ManualClock(1_000_000)
    board = _ShakyBoard(clock)
    text = PER_USER.replace("100/s", f"100/s\n    on_store_failure: {on_store_failure}")
    return Service(text, board=board, clock=clock), board


@pytest.mark.parametrize("policy", ["fail_open", "local"])
def test_without_a_board_gateways_go_on_with_what_they_have(policy: str) -> None:
    async def scene() -> None:
        service, board = _service(policy)
        one, other = Line(service), Line(service)
        for line in (one, other):
            await line.report(FIRST)
        await service.pass_time(3)
        board.is_there = False
        for _ in range(6):
            await service.pass_time(5)
            for line in (one, other):
                await line.report((ADA, 5, 10, 10))
        assert one.rate(**ADA) == other.rate(**ADA) == 47.5
        assert len(one.messages) >= 6  # told again and again, or they would forget
        late = Line(service)
        await late.report(FIRST)
        assert late.rate(**ADA) == 100  # who has nothing gets the limit for itself
        board.is_there = True
        for _ in range(3):
            await service.pass_time(5)
            for line in (one, other, late):
                await line.report((ADA, 5, 10, 100))
        rates = [line.rate(**ADA) or 0 for line in (one, other, late)]
        assert 85 < sum(rates) <= 100
        for line in (one, other, late):
            await line.vanish()

    run(scene)


def test_without_a_board_nothing_passes_under_a_rule_that_fails_closed() -> None:
    async def scene() -> None:
        service, board = _service("fail_closed")
        line = Line(service)
        await line.report(FIRST)
        assert line.rate(**ADA) == 95
        board.is_there = False
        await service.pass_time(2)
        assert line.rate(**ADA) == 95  # its time is not over
        await service.pass_time(4)
        assert line.rate(**ADA) == 0
        board.is_there = True
        await service.pass_time(10)
        await line.report((ADA, 5, 10, 100))
        await service.pass_time(3)
        assert line.rate(**ADA) == 95
        await line.vanish()

    run(scene)


def test_a_turn_whose_reply_was_lost_gives_nothing_twice() -> None:
    async def scene() -> None:
        service, board = _service("fail_closed")
        line, other = Line(service), Line(service)
        board.loses_replies = True
        await line.report(FIRST)
        assert line.rate(**ADA) == 0
        board.loses_replies = False
        await other.report(FIRST)
        assert (other.rate(**ADA) or 0) <= 5
        await line.vanish()
        await other.vanish()

    run(scene)


def test_the_board_is_closed_with_the_service() -> None:
    async def scene() -> None:
        service, board = _service("fail_open")
        await service.calls.start()
        await service.calls.aclose()
        assert board.is_closed

    run(scene)
