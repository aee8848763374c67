"""Work that goes on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headgate.runtime.supervised_task import SupervisedTask
from tests.support.servers import until

if TYPE_CHECKING:
    import pytest


class Work:
    """Fails so many times, and then goes on until it is ended."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.begun = self.ended = 0
        self.mistakes: list[BaseException] = []

    async def __call__(self) -> None:
        self.begun += 1
        if self.begun <= self.failures:
            raise ZeroDivisionError
        try:
            await asyncio.Event().wait()
        finally:
            self.ended += 1

    def task(self, pause: float = 0.0) -> SupervisedTask:
        return SupervisedTask(self, name="work", pause=pause, on_mistake=self.mistakes.append)


def test_it_is_begun_once_and_ended_when_it_is_closed() -> None:
    async def main() -> None:
        work = Work(0)
        task = work.task()
        task.start()
        task.start()
        await until(lambda: work.begun > 0)
        await task.aclose()
        await task.aclose()
        assert (work.begun, work.ended, work.mistakes) == (1, 1, [])

    asyncio.run(main())


def test_a_mistake_is_told_and_the_work_is_begun_again(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        work = Work(2)
        task = work.task()
        task.start()
        await until(lambda: work.begun == 3)
        await task.aclose()
        assert (len(work.mistakes), work.ended) == (2, 1)

    asyncio.run(main())
    assert caplog.text.count("work failed; starting again") == 2
    assert "ZeroDivisionError" in caplog.text


def test_closed_after_a_mistake_it_is_not_begun_again() -> None:
    async def main() -> None:
        work = Work(1)
        task = work.task(pause=0.005)
        task.start()
        await until(lambda: bool(work.mistakes))
        await task.aclose()
        await asyncio.sleep(0.02)
        assert work.begun == 1

    asyncio.run(main())
