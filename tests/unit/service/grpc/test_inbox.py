"""Messages that wait for a method."""

from __future__ import annotations

import asyncio

from headgate.service.grpc.h2_server.streams import BACKLOG, BACKLOG_BYTES, Inbox


class Gate:
    """Remembers whether the caller is being kept waiting."""

    def __init__(self) -> None:
        self.is_shut = False
        self.turns = 0

    def shut(self) -> None:
        self.is_shut = True
        self.turns += 1

    def open(self) -> None:
        self.is_shut = False


def test_messages_come_in_order_and_end_when_it_is_closed() -> None:
    async def main() -> None:
        gate = Gate()
        inbox = Inbox(on_high=gate.shut, on_low=gate.open)
        inbox.put(b"1")
        reading = asyncio.ensure_future(_all(inbox))
        await asyncio.sleep(0)
        inbox.put(b"2")
        inbox.close()
        inbox.put(b"too late")
        assert await reading == [b"1", b"2"]
        assert gate.turns == 0

    asyncio.run(main())


def test_a_long_backlog_keeps_the_caller_waiting_until_half_is_taken() -> None:
    async def main() -> None:
        gate = Gate()
        inbox = Inbox(on_high=gate.shut, on_low=gate.open)
        for _ in range(BACKLOG):
            inbox.put(b"x")
        assert not gate.is_shut
        inbox.put(b"x")
        inbox.put(b"x")
        assert gate.is_shut
        taken = 0
        while gate.is_shut:
            await anext(inbox)
            taken += 1
        assert taken == BACKLOG + 2 - BACKLOG // 2
        assert gate.turns == 1

    asyncio.run(main())


def test_what_is_cleared_keeps_nobody_waiting() -> None:
    async def main() -> None:
        gate = Gate()
        inbox = Inbox(on_high=gate.shut, on_low=gate.open)
        for _ in range(BACKLOG + 1):
            inbox.put(b"x")
        inbox.clear()
        assert not gate.is_shut
        assert await _all(inbox) == []

    asyncio.run(main())


def test_a_reader_that_is_cancelled_loses_nothing() -> None:
    async def main() -> None:
        gate = Gate()
        inbox = Inbox(on_high=gate.shut, on_low=gate.open)
        reading = asyncio.ensure_future(anext(inbox))
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        inbox.put(b"x")
        assert await anext(inbox) == b"x"

    asyncio.run(main())


async def _all(inbox: Inbox) -> list[bytes]:
    return [message async for message in inbox]


def test_a_heavy_backlog_keeps_the_caller_waiting_too_and_what_is_taken_is_told() -> None:
    async def main() -> None:
        gate = Gate()
        taken: list[int] = []
        inbox = Inbox(on_high=gate.shut, on_low=gate.open, on_taken=taken.append)
        assert inbox.put(bytes(BACKLOG_BYTES))
        assert not gate.is_shut
        assert inbox.put(b"x")
        assert gate.is_shut
        await anext(inbox)
        assert not gate.is_shut
        inbox.close()
        assert not inbox.put(b"too late")
        await anext(inbox)
        assert taken == [BACKLOG_BYTES, 1]

    asyncio.run(main())
