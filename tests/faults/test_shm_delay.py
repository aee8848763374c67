"""Processes that the scheduler delays while they hold the lock are not an outage."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

import pytest

from headgate.limits import FixedWindow
from headgate.stores.operations import Check, Take
from headgate.stores.shm import ShmStore
from headgate.stores.shm.file import path_of
from tests.support.faults.shm_loops import KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = FixedWindow(100, 50 * 365 * 86_400)

BUSY = """
import os, sys, time
from headgate.limits import FixedWindow
from headgate.stores.operations import Check, Take
from headgate.stores.shm import ShmStore
store = ShmStore(sys.argv[1])
take = Take((Check("group", "key", FixedWindow(100, 50 * 365 * 86_400), 10),))
store.run(take)
pwrite = os.pwrite
def write_late(*args):
    print("holds the lock", flush=True)
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        pass
    os.pwrite = pwrite
    return pwrite(*args)
os.pwrite = write_late
store.run(take)
"""


@pytest.fixture
def name() -> Iterator[str]:
    made = f"delay-{token_hex(8)}"
    yield made
    path_of(made).unlink(missing_ok=True)


def test_a_holder_that_is_busy_for_several_timeouts_is_waited_for(name: str) -> None:
    url = f"shm://{name}?size=1MB&timeout=0.05"
    store = ShmStore(url)
    call = [sys.executable, "-c", BUSY, url]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        assert process.stdout.readline() == "holds the lock\n"
        (outcome,) = store.run(Take((Check("group", "key", LIMIT),)))
    assert (process.returncode, outcome.remaining) == (0, 79)
    store.close()


def test_event_loops_on_a_busy_machine_never_allow_more_than_the_limit(name: str) -> None:
    script = Path(__file__).parents[1] / "support" / "faults" / "shm_loops.py"
    processes, hogs, limit, hits = 4, 6, 500, 2_000
    arguments = map(str, (f"shm://{name}?size=1MB", processes, hogs, limit, hits))
    done = subprocess.run(  # noqa: S603
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen == {"allowed": KEYS * limit, "store": processes * hits}, done.stderr
