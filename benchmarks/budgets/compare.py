"""Compare another revision with this tree: its own benchmarks measure each, in turns.

Both run in this environment; the revision's sources come first on the path of its processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.budgets.row import figure, markdown

ROUNDS: Final = 3
HERE: Final = Path(__file__).parents[2]


def compare(revision: str, groups: list[str], *, quick: bool, most: float) -> int:
    """Print the medians of three runs of both; 1 if a row is more than *most* times as slow."""
    with tempfile.TemporaryDirectory(prefix="headgate-old-") as folder:
        old = Path(folder)
        archive = subprocess.run(  # noqa: S603 - the arguments are our own
            ["git", "archive", revision],  # noqa: S607
            cwd=HERE,
            check=True,
            stdout=subprocess.PIPE,
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)  # noqa: S603, S607
        runs: list[dict[str, Any]] = []
        for number in range(ROUNDS):
            for group in groups:
                trees = {"old": old, "new": HERE}
                order = list(trees) if number % 2 else list(trees)[::-1]
                for name in order:
                    rows = _measure(trees[name], group, quick=quick)
                    runs += [{**row, "tree": name} for row in rows]
    lines, slower = _table(runs, most)
    print(markdown(["row", revision[:12], "this tree", "slower by", "verdict"], lines))
    return 1 if slower else 0


def _measure(tree: Path, group: str, *, quick: bool) -> list[dict[str, Any]]:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        call = [sys.executable, "-m", "benchmarks.budgets", "--rows", group, "--alone"]
        call += ["--json", file.name, *(["--quick"] if quick else [])]
        path = f"{tree}/src:{tree}"
        subprocess.run(  # noqa: S603 - the arguments are our own
            call, cwd=tree, env={**os.environ, "PYTHONPATH": path}, check=True, stdout=sys.stderr
        )
        rows: list[dict[str, Any]] = json.loads(Path(file.name).read_text())["rows"]
    return rows


def _table(runs: list[dict[str, Any]], most: float) -> tuple[list[list[str]], int]:
    """The rows that both trees have, and how many of them are too slow."""
    values: dict[str, dict[str, list[float]]] = {}
    for row in runs:
        values.setdefault(row["name"], {}).setdefault(row["tree"], []).append(row["compared"])
    better_if_higher = {row["name"] for row in runs if row["higher_is_better"]}
    lines, slower = [], 0
    for name, both in values.items():
        if len(both) < 2:
            lines.append([name, *(["-"] * 3), f"only in the {next(iter(both))} tree"])
            continue
        old, new = median(both["old"]), median(both["new"])
        ratio = old / new if name in better_if_higher else new / old
        is_slower = ratio > most
        slower += is_slower
        verdict = "SLOWER" if is_slower else "ok"
        lines.append([name, figure(old), figure(new), f"{ratio:.2f}", verdict])
    return lines, slower
