"""What all tests have in common."""

import gc
import os
import signal
from functools import cache
from pathlib import Path
from types import FrameType

import httpx._transports.default
import pytest
from httpx import create_ssl_context
from hypothesis import HealthCheck, settings

from tests.examples import example_count

pytest_plugins = ["tests.complete"]

# Show the values when an assertion of a contract fails.
pytest.register_assert_rewrite("headgate.testing", "tests.contract")

# A machine that is busy is slow now and then. In CI no run tries what the one before did not: what
# it finds depends on the code alone. Elsewhere each run tries something else.
settings.register_profile(
    "tests",
    max_examples=example_count(100),
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tests")

# A client of httpx reads all authorities there are when it is made, for TLS or not: some 30 ms, and
# tests make thousands of them. What is read is the same each time.
vars(httpx._transports.default)["create_ssl_context"] = cache(create_ssl_context)


# A worker has hundreds of megabytes of tests, and a look at all of it takes a second. So there is
# no garbage collection while tests are collected, none of them is looked at afterwards, and what
# comes later is looked at more rarely.


def pytest_configure() -> None:
    gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


# A runner of asyncio replaces the default handler of Ctrl-C, and no other, for each call. That
# writes out the task and what it has returned, which takes longer than most calls do.


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.default_int_handler(number, frame)


# Files of these folders wait for processes, the others keep a core busy. Workers that get both at
# the same time leave no core idle. Those that wait are over first: the last to end are short.

_WAITING_FOLDERS = ("integration", "faults", "golden", "security")
_WAITING = tuple(Path(__file__).parent / name for name in _WAITING_FOLDERS)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mix the files that wait with those that compute, for workers of pytest-xdist."""
    if not hasattr(config, "workerinput"):
        return
    files = dict.fromkeys(item.path for item in items)
    waiting = [file for file in files if any(map(file.is_relative_to, _WAITING))]
    computing = [file for file in files if file not in waiting]
    place = {file: 0.9 * number / len(waiting) for number, file in enumerate(waiting)}
    place |= {file: number / len(computing) for number, file in enumerate(computing)}
    items.sort(key=lambda item: place[item.path])


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()
