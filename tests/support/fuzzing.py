"""What fuzz tests share: a bound on the work of one input, and inputs that are nearly right."""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from tests.examples import EXPLORE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

CPU_SECONDS = 10.0
"""The bound for one input of usual size: over a thousand times what it takes."""

LARGEST_CPU_SECONDS = 100.0
"""The bound for an input of the largest size that is read: about a hundred times what it takes."""


class EndlessError(AssertionError):
    """An input that is still being worked on when its processor time is over."""


@contextmanager
def bounded(cpu_seconds: float = CPU_SECONDS) -> Iterator[None]:
    """Fail if the body takes more than *cpu_seconds* of this process's time.

    A watchdog for hangs and for work that grows with the square of an input. It counts the time
    of this process alone, so a busy machine does not set it off.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise EndlessError(f"one input has taken more than {cpu_seconds} s of processor time")

    before, began = signal.signal(signal.SIGPROF, stop), time.process_time()
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    if time.process_time() - began > cpu_seconds:  # the error was caught on its way
        raise EndlessError(f"one input took more than {cpu_seconds} s of processor time")


def fuzz_count(count: int) -> int:
    """*count* examples, as many times as is to be explored."""
    return count * max(EXPLORE, 1)


Changes = list[tuple[int, int, Any]]


def changes(length: int, pieces: st.SearchStrategy[Any], most: int = 4) -> Any:
    """Strategy for `changed`, for an input of *length*: where, how much goes, and what comes."""
    one = st.tuples(st.integers(0, length), st.integers(0, 12), pieces)
    return st.lists(one, min_size=1, max_size=most)


def changed(whole: Any, several: Changes) -> Any:
    """*whole*, a text or bytes, with some of it replaced."""
    for at, count, piece in several:
        whole = whole[:at] + piece + whole[at + count :]
    return whole


anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=10,
)
"""Any data of JSON, and floats that JSON has no words for."""


def paths_in(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in *data*, from the outside in."""
    steps = data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    return [path, *(found for step in steps for found in paths_in(data[step], (*path, step)))]


def replaced(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    """*data* with *value* at *path*."""
    if not path:
        return value
    copy = dict(data) if isinstance(data, dict) else list(data)
    copy[path[0]] = replaced(data[path[0]], path[1:], value)
    return copy
