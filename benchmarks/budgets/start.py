"""The time to import the package, and of the shortest command."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from functools import partial

from benchmarks.budgets.row import Budget, Effort, Row
from benchmarks.measure import in_turns


def start(effort: Effort) -> list[Row]:
    calls = {
        "python": ["-c", "pass"],
        "import headgate": ["-c", "import headgate"],
        "import limits": ["-c", "import limits"],
        "headgate --help": ["-m", "headgate.cli", "--help"],
    }
    samples = {name: partial(_run_ns, call) for name, call in calls.items()}
    best = {name: timing.best / 1e6 for name, timing in in_turns(samples, effort.rounds(8)).items()}
    bare = best["python"]
    return [
        Row(
            "start.import",
            "import headgate",
            best["import headgate"] - bare,
            "ms",
            (Budget(1, "import limits"),),
            {"import limits": best["import limits"] - bare},
        ),
        Row(
            "start.help",
            "headgate --help",
            best["headgate --help"],
            "ms",
            (Budget(202),),
            {"python": bare},
        ),
    ]


def _run_ns(arguments: list[str]) -> float:
    """Nanoseconds of processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run(  # noqa: S603 - the arguments are our own
        [sys.executable, *arguments], env=environment, check=True, capture_output=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e9
