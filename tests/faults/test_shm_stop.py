"""A worker stopped with SIGSTOP while it has its turn: the others go on by their failure policy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from secrets import token_hex
from typing import TYPE_CHECKING

import pytest

from headgate import RateLimiter
from headgate.errors import StoreError
from headgate.limits import FixedWindow
from headgate.stores.operations import Check, Take
from headgate.stores.shm import ShmStore
from headgate.stores.shm.file import path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = FixedWindow(100, 50 * 365 * 86_400)

STOPPED = """
import os, signal, sys
from headgate.limits import FixedWindow
from headgate.stores.operations import Check, Take
from headgate.stores.shm import ShmStore
store = ShmStore(sys.argv[1])
store.run(Take((Check("group", "key", FixedWindow(100, 50 * 365 * 86_400), 10),)))
pwrite = os.pwrite
def stop_before_it_writes(*args):
    print("has its turn", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    os.pwrite = pwrite
    return pwrite(*args)
os.pwrite = stop_before_it_writes
store.run(Take((Check("group", "key", FixedWindow(100, 50 * 365 * 86_400), 10),)))
print("done", flush=True)
"""


@contextmanager
def stopped_in_its_turn(url: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is stopped in the middle of an operation that charges 10."""
    call = [sys.executable, "-c", STOPPED, url]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "has its turn\n"
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            yield process
        finally:
            process.kill()


@pytest.fixture
def url() -> Iterator[str]:
    name = f"stop-{token_hex(8)}"
    yield f"shm://{name}?size=1MB&timeout=0.05"
    path_of(name).unlink(missing_ok=True)


def left(store: ShmStore) -> int:
    return store.run(Take((Check("group", "key", LIMIT),), consume=False))[0].remaining


def test_others_wait_for_a_while_and_then_cannot_decide(url: str) -> None:
    store = ShmStore(url)
    with stopped_in_its_turn(url):
        for _ in range(3):
            with pytest.raises(StoreError, match="was not free") as caught:
                left(store)
            assert caught.value.reason == "timeout"
        for policy, is_admitted in (("fail_open", True), ("fail_closed", False)):
            limiter = RateLimiter(LIMIT, store=store, name="api", on_store_failure=policy)  # type: ignore[arg-type] # one of two texts
            decision = limiter.hit("key")
            assert (decision.allowed, decision.source) != (True, "store")
            assert decision.allowed is is_admitted
    store.close()


def test_who_is_continued_finishes_and_the_others_go_on(url: str) -> None:
    store = ShmStore(url)
    with stopped_in_its_turn(url) as process:
        with pytest.raises(StoreError):
            left(store)
        process.send_signal(signal.SIGCONT)
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        assert left(store) == 80
    store.close()


def test_who_is_killed_while_it_is_stopped_has_charged_nothing(url: str) -> None:
    store = ShmStore(url)
    with stopped_in_its_turn(url) as process:
        with pytest.raises(StoreError):
            left(store)
        process.kill()
        process.wait()
        assert left(store) == 90
    store.close()
