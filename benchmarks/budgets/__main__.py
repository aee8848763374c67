"""`python -m benchmarks.budgets`: print the table of budgets, and write it as JSON.

`--compare REVISION` measures another revision and this tree alternately and compares the medians.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.budgets.compare import compare
from benchmarks.budgets.row import HEADINGS, Effort, markdown
from benchmarks.measure import write_record

if TYPE_CHECKING:
    from benchmarks.budgets.row import Row

RESULTS: Final = Path(__file__).parents[1] / "results" / "budgets.json"
GROUPS: Final = {
    "memory": "memory",
    "threads": "memory",
    "asgi": "web",
    "wsgi": "web",
    "redis": "redis",
    "arrivals": "redis",
    "rls": "rls",
    "http": "service",
    "envoy": "service",
    "leases": "redis",
    "shm": "shm",
    "rules": "rules",
    "overload": "overload",
    "start": "start",
}
"""The rows, and the module that measures them: imported when needed, as some import a lot."""


def main() -> int:
    options = _parser().parse_args()
    if options.compare:
        return compare(options.compare, options.rows, quick=options.quick, most=options.most)
    effort = Effort(0.5 if options.quick else 1.0, with_peers=not options.alone)
    rows: list[Row] = []
    took: dict[str, float] = {}
    failed: list[str] = []
    for name in options.rows:
        began = time.monotonic()
        try:
            rows += _measure(name, effort)
        except Exception:  # noqa: BLE001 - the other rows count all the same
            failed.append(name)
            traceback.print_exc()
        took[name] = round(time.monotonic() - began, 1)
        print(f"{name}: {took[name]} s", file=sys.stderr)
    print(markdown(HEADINGS, [row.cells() for row in rows]))
    record = {
        "cpu": _cpu(),
        "kernel": platform.release(),
        "quick": options.quick,
        "seconds": took,
        "failed": failed,
        "rows": [row.record() for row in rows],
    }
    write_record(options.json, record)
    if failed:
        print(f"not measured, see above: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _measure(name: str, effort: Effort) -> list[Row]:
    module = import_module(f"benchmarks.budgets.{GROUPS[name]}")
    rows: list[Row] = getattr(module, name)(effort)
    return rows


def _cpu() -> str:
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()


def _groups(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in GROUPS]:
        raise argparse.ArgumentTypeError(f"no rows {', '.join(unknown)}; there are {_ALL}")
    return names


_ALL: Final = ",".join(GROUPS)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.budgets", description=__doc__)
    parser.add_argument("--rows", type=_groups, default=list(GROUPS), help=f"some of {_ALL}")
    parser.add_argument("--quick", action="store_true", help="half of the time, rough figures")
    parser.add_argument("--alone", action="store_true", help="without the peers")
    parser.add_argument("--json", type=Path, default=RESULTS, help="the file to write")
    parser.add_argument("--compare", metavar="REVISION", help="a commit with this module in it")
    parser.add_argument(
        "--most", type=float, default=1.15, help="how much slower a row may be (default 1.15)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
