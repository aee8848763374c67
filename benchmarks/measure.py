"""What the benchmarks share: samples in turns, goals, tables and records."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import platform
import random
import statistics
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

MILLISECOND: Final = 1_000_000

_SPIN: Final = """
import os
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


@dataclass(frozen=True, slots=True)
class Timing:
    """Nanoseconds per check: the least disturbed sample and the median."""

    best: float
    median: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Timing:
        return cls(round(min(samples), 1), round(statistics.median(samples), 1))


def turns(names: Iterable[str], rounds: int) -> Iterator[str]:
    """Yield all *names* in each of *rounds*, every round in a new order."""
    order = list(names)
    shuffle = random.Random(1).shuffle
    for _ in range(rounds):
        shuffle(order)
        yield from order


def in_turns(samples: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, Timing]:
    """Take *rounds* samples of each in turns, so that a noisy machine disturbs all alike.

    A sample is nanoseconds per check. The garbage collector is on, but objects that exist before
    a sample are frozen: no contestant pays for the garbage of another.
    """
    taken: dict[str, list[float]] = {name: [] for name in samples}
    for name in turns(samples, rounds):
        gc.freeze()
        taken[name].append(samples[name]())
    gc.unfreeze()
    return {name: Timing.of(values) for name, values in taken.items()}


@contextmanager
def processors_awake() -> Iterator[None]:
    """Keep the processors from sleeping until the end of the block.

    A processor of a virtual machine takes 50 to 150 microseconds to wake up, which would be most of
    the time of a single check. Processes of idle priority spin on each; they give way at once.
    """
    count = (os.cpu_count() or 1) if hasattr(os, "SCHED_IDLE") else 0
    spinning = [
        subprocess.Popen([sys.executable, "-c", _SPIN])  # noqa: S603 - our own interpreter
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


@dataclass(frozen=True, slots=True)
class Goal:
    """A measured value and its bound."""

    what: str
    value: float
    bound: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        verdict = "met" if self.met else "MISSED"
        return f"{verdict:6}  {self.value:7.2f}  (goal {sign} {self.bound:g})  {self.what}"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in text: the first column is text, the others are numbers."""
    lines = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "  ".join([first.ljust(widths[0]), *map(str.rjust, others, widths[1:])]).rstrip()
        for first, *others in lines
    )


def write_record(path: Path, results: Mapping[str, object], goals: Sequence[Goal] = ()) -> None:
    """Write *results* as JSON, with the time, the machine and the *goals*."""
    surroundings = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }
    held = [{**dataclasses.asdict(goal), "met": goal.met} for goal in goals]
    record = {**surroundings, **results, **({"goals": held} if held else {})}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=2, default=_plain) + "\n", encoding="utf-8")


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"{value!r} has no form in JSON")
