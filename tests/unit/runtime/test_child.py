"""A program that is started again when it ends: small ones of the tests' own."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from headgate.runtime.supervisor import (
    Backoff,
    Child,
    Program,
    StartError,
    dying_with_parent,
    exit_reason,
)
from tests.support.servers import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

SERVES = "import sys, time; print('serves', file=sys.stderr, flush=True); time.sleep(600)"


@pytest.fixture(autouse=True)
def _heard(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    logger = logging.getLogger("headgate")
    before, logger.propagate = logger.propagate, True
    caplog.set_level(logging.DEBUG, "headgate")
    yield
    logger.propagate = before


def report(message: str, *, level: int = logging.INFO, **_: object) -> None:
    logging.getLogger("headgate").log(level, message)


class Lines:
    """The lines of a script; the last one is the reason of its end."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @property
    def last_error(self) -> str:
        return self.lines[-1] if self.lines else ""

    def read_line(self, line: str) -> None:
        self.lines.append(line)


class Script(Program):
    """A `Program` that is a text of Python. It serves as soon as it has said so."""

    name = "the script"
    hang_timeout = 600.0
    log: Lines

    def __init__(self, *texts: str, is_answering: bool = True) -> None:
        self._texts = list(texts)
        self.is_answering = is_answering
        self.log = Lines()

    def begin(self) -> None:
        self.log.lines.clear()

    def call(self) -> Sequence[str]:
        text = self._texts.pop(0) if len(self._texts) > 1 else self._texts[0]
        return dying_with_parent([sys.executable, "-I", "-S", "-c", text])

    def environment(self) -> Mapping[str, str]:
        return {}

    async def is_ready(self) -> bool:
        return "serves" in self.log.lines

    async def is_healthy(self) -> bool:
        return self.is_answering


@asynccontextmanager
async def _running(program: Script) -> AsyncIterator[Child]:
    child = Child(program, report=report, backoff=Backoff(first=0.0))
    await child.start()
    try:
        yield child
    finally:
        await child.kill()


def test_one_that_cannot_start_is_told_with_its_last_words() -> None:
    program = Script("import sys; sys.exit('the port is taken')")
    child = Child(program, report=report)
    with pytest.raises(StartError) as caught:
        asyncio.run(child.start())
    assert str(caught.value) == "the script ended (exit status 1): the port is taken"
    assert child.pid is None


def test_a_program_that_cannot_be_run_is_told() -> None:
    program = Script("")
    program.call = lambda: dying_with_parent(["/nowhere/envoy"])  # type: ignore[method-assign]
    with pytest.raises(StartError, match="/nowhere/envoy: cannot run: No such file"):
        asyncio.run(Child(program, report=report).start())


def test_one_that_ends_is_started_again_with_a_line_for_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        program = Script(SERVES, "import sys; sys.exit('not yet')", SERVES)
        async with _running(program) as child:
            first = child.pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            await until(lambda: "is ready again" in caplog.text)
            assert child.starts == 3
            assert child.pid not in (None, first)

    asyncio.run(main())
    assert [record.getMessage() for record in caplog.records] == [
        "the script ended (killed by SIGKILL): serves; restarting in 0 s",
        "the script ended (exit status 1): not yet; restarting in 0 s",
        "the script is ready again",
    ]


def test_one_that_hangs_is_killed_and_started_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.runtime.supervisor._HEALTH_INTERVAL_S", 0.01)

    async def main() -> None:
        program = Script(SERVES)
        program.hang_timeout = 0.05
        async with _running(program):
            program.is_answering = False
            await until(lambda: "and was killed" in caplog.text)
            program.is_answering = True
            await until(lambda: "is ready again" in caplog.text)

    asyncio.run(main())
    assert "the script did not respond for 0.05 s and was killed" in caplog.text


def test_one_that_is_asked_to_end_is_not_started_again(caplog: pytest.LogCaptureFixture) -> None:
    handled = f"import signal, sys; signal.signal(15, lambda *_: sys.exit(0)); {SERVES}"

    async def main() -> tuple[bool, bool]:
        async with _running(Script(handled)) as polite, _running(Script(SERVES)) as rude:
            return await polite.stop(within=60.0), await rude.stop(within=60.0)

    assert asyncio.run(main()) == (True, False)
    assert not caplog.records


def test_one_that_does_not_end_is_killed() -> None:
    deaf = f"import signal; signal.signal(15, signal.SIG_IGN); {SERVES}"

    async def main() -> bool:
        async with _running(Script(deaf)) as child:
            is_done = await child.stop(within=0.0)
            assert child.pid is None
            return is_done

    assert not asyncio.run(main())


def test_long_lines_and_the_last_one_without_an_end_are_heard() -> None:
    text = "import sys; sys.stderr.write('x' * 200_000 + '\\nlast')"
    program = Script(text)
    with pytest.raises(StartError, match="last"):
        asyncio.run(Child(program, report=report).start())
    assert program.log.last_error == "last"


@pytest.mark.parametrize(
    ("status", "told"),
    [(0, "exit status 0"), (-11, "killed by SIGSEGV"), (-999, "killed by signal 999")],
)
def test_the_ending_is_told_in_words(status: int, told: str) -> None:
    assert exit_reason(status) == told
