"""The Python samples of README.md and docs/, in units that run and are type-checked alone."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

BY_SECTION = frozenset({"capacity", "frameworks", "migration", "queues"})
"""Pages whose sections are independent; the samples of any other page build on each other."""


def units(page: Path) -> list[str]:
    """The samples of each unit of *page* at their lines; all other lines are empty."""
    found: list[list[str]] = [[]]
    is_sample = is_block = False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            is_block = not is_block
            is_sample = is_block and line == "```python"
        elif page.stem in BY_SECTION and not is_block and re.match("## ", line):
            found.append([""] * len(found[-1]))
        found[-1].append("" if line.startswith("```") or not is_sample else line)
    return ["\n".join(lines) + "\n" for lines in found if any(lines)]
