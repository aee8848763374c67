"""Workers come and go; the supervisor neither loses one for good nor ends with the wrong status.

The workers here are small scripts that do as they are told by a file.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from headgate.config.service import Settings
from headgate.config.values import Address
from headgate.runtime import supervisor as module
from headgate.runtime.supervisor import Backoff, StartError
from headgate.service.sockets import listen_as
from headgate.service.supervisor import WorkerProgram, Workers, WorkerSupervisor
from tests.support.servers import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headgate.service.container import Report

SCRIPT = """\
#!{python}
import os, signal, sys, time
from pathlib import Path
directory = Path({directory!r})
if (directory / "deaf").exists():
    (directory / f"started-{{os.getpid()}}").touch()
    time.sleep(60)
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
signal.signal(signal.SIGHUP, lambda *_: (directory / f"heard-{{os.getpid()}}").touch())
from multiprocessing.connection import Connection
from headgate.service.container import Report
end = Connection(int(sys.argv[-1]))
end.recv()
end.send(Report(1, 1, 0))
if (directory / "lingers").exists():
    os.close(end.fileno())
while True:  # a signal just before a sleep does not end it
    time.sleep(0.1)
"""


class Trial:
    """A supervisor of two such workers, in *directory*."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        settings = Settings(
            rules="rules.yaml",
            store="redis://127.0.0.1:1",
            http=(Address("127.0.0.1", 0),),
            grpc=(),
            workers=2,
            linger=0.0,
            drain=0.1,
        )
        self.reports: list[Report] = []
        self.listeners = listen_as(settings)
        self.workers = Workers(settings, self.listeners)
        self.supervisor = WorkerSupervisor(self.workers, on_ready=self.reports.append)

    def run(self, body: Callable[[], Any]) -> int:
        """Serve while *body* runs, then stop; the status."""

        async def main() -> int:
            serving = asyncio.create_task(self.supervisor.serve())
            try:
                async with asyncio.timeout(30):
                    await body()
            finally:
                if not serving.done():
                    self.supervisor.stop()
            return await serving

        return asyncio.run(main())

    @property
    def pids(self) -> list[int]:
        return [one.pid for one in self.supervisor.children if one.pid is not None]

    async def served(self) -> None:
        await until(lambda: bool(self.reports))


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trial]:
    script = tmp_path / "python"
    script.write_text(SCRIPT.format(python=sys.executable, directory=str(tmp_path)))
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    one = Trial(tmp_path)
    yield one
    one.workers.close()
    one.listeners.close()


def test_workers_that_end_as_told_are_a_clean_end(trial: Trial) -> None:
    assert trial.run(trial.served) == 0


def test_who_is_told_to_stop_before_it_listens_has_cut_nothing_off(trial: Trial) -> None:
    (trial.directory / "deaf").touch()

    async def body() -> None:
        await until(lambda: len(list(trial.directory.glob("started-*"))) == 2)

    assert trial.run(body) == 0


def test_a_process_that_cannot_be_had_is_tried_again(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left = 2

    class Scarce(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            nonlocal left
            if trial.reports and left:
                left -= 1
                raise BlockingIOError(11, "Resource temporarily unavailable")
            super().__init__(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", Scarce)
    monkeypatch.setattr(Backoff, "after", lambda *_: 0.001)

    async def body() -> None:
        await trial.served()
        before = trial.pids
        os.kill(before[0], signal.SIGKILL)
        await until(lambda: "is ready again" in caplog.text)
        assert len(trial.pids) == 2
        assert before[0] not in trial.pids

    caplog.set_level("INFO", "headgate.service")
    assert trial.run(body) == 0
    assert caplog.text.count("worker 0 cannot start: Resource temporarily unavailable") == 2


def test_no_process_at_all_is_an_error_and_no_loop(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: Any, **__: Any) -> Any:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", none)
    with pytest.raises(StartError, match="worker 0 cannot start: Resource"):
        asyncio.run(trial.supervisor.serve())


def test_sighup_is_for_those_who_serve(trial: Trial) -> None:
    async def body() -> None:
        await until(lambda: bool(trial.pids))
        os.kill(os.getpid(), signal.SIGHUP)  # nobody serves yet, and it would be their end
        await trial.served()
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: len(list(trial.directory.glob("heard-*"))) == 2)
        assert all((trial.directory / f"heard-{pid}").exists() for pid in trial.pids)

    assert trial.run(body) == 0


def test_who_does_not_end_after_its_last_word_is_killed_and_nobody_waits_for_it(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(WorkerProgram, "hang_timeout", 0.01)
    monkeypatch.setattr(module, "_HEALTH_INTERVAL_S", 0.01)

    async def body() -> None:
        await trial.served()
        (trial.directory / "lingers").touch()
        os.kill(trial.pids[0], signal.SIGKILL)
        await until(lambda: "did not respond" in caplog.text)
        (trial.directory / "lingers").unlink()

    caplog.set_level("INFO", "headgate.service")
    trial.run(body)
