"""Limited Celery tasks on real workers: one in a thread, and the example on two processes."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.signals import setup_logging

from headgate.integrations.celery import TaskLimitedError, TaskLimits
from tests.support.servers import RedisServer
from tests.support.servers.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = Path(__file__).parents[2] / "examples"


def _leave_logging_alone(**_: object) -> None:
    """A receiver of `setup_logging`: with one, Celery does not configure the root logger."""


@contextmanager
def working(app: Celery[Any]) -> Iterator[None]:
    """A worker of *app* in a thread."""
    setup_logging.connect(_leave_logging_alone)
    try:
        with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=30):
            yield
    finally:
        setup_logging.disconnect(_leave_logging_alone)


@pytest.fixture
def app() -> Iterator[Celery[Any]]:
    made: Celery[Any] = Celery("served", broker="memory://", backend="cache+memory://")
    made.conf.update(worker_hijack_root_logger=False, worker_redirect_stdouts=False)
    yield made
    made.close()


def test_a_worker_waits_retries_and_rejects(app: Celery[Any]) -> None:
    limits = TaskLimits("memory://")

    @app.task(name="served.wait")
    @limits.limit("10/s", when_limited="wait")
    def waiting(number: int) -> int:
        return number

    @app.task(name="served.retry", max_retries=0)
    @limits.limit("2/s", key="user")
    def retried(user: str, number: int) -> int:
        return number

    @app.task(name="served.reject")
    @limits.limit("1/minute", when_limited="reject")
    def rejected() -> None: ...

    with working(app):
        waits = [waiting.delay(number) for number in range(15)]
        retries = [retried.delay("ann", number) for number in range(4)]
        rejections = [rejected.delay() for _ in range(2)]
        assert [one.get(timeout=50) for one in waits] == list(range(15))
        assert [one.get(timeout=50) for one in retries] == list(range(4))
        assert rejections[0].get(timeout=50) is None
        with pytest.raises(TaskLimitedError) as raised:
            rejections[1].get(timeout=50)
        assert raised.value.retry_after is not None


def test_the_example_shares_its_limits_over_two_workers(tmp_path: Path) -> None:
    with RedisServer() as store, ExitStack() as stack:
        # Celery does not know the options of a store URL, such as the longer timeout of tests.
        # With the default of 50 ms a busy machine looks like an outage, and then each
        # worker counts for itself.
        env = {"REDIS_URL": store.bare_url, "LIMITS_URL": store.url}
        variables = [f"{key}={value}" for key, value in env.items()]
        for name in ("one", "two"):
            options = ["--workdir", str(EXAMPLES), "worker", "--pool", "solo", "-n", f"{name}@h"]
            call = [sys.executable, "-m", "celery", "-A", "celery_tasks", *options]
            worker = Process(["env", *variables, *call], tmp_path / name)
            stack.callback(worker.terminate)
        done = subprocess.run(  # noqa: S603 (our own example)
            [sys.executable, str(EXAMPLES / "celery_tasks.py")],
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=55,
        )
    lines = done.stdout.splitlines()
    assert lines[:4] == [f"letter {number} to ann" for number in range(4)], done.stderr
    assert lines[4:12] == [f"TOWN {number}" for number in range(8)]
    # whichever worker was first: the other one has counted it
    assert sorted(line.partition("(")[0] for line in lines[12:]) == [
        "'report for ann'",
        "TaskLimitedError",
    ]
