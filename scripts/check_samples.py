"""Check the types of the Python samples in README.md and docs/ with pyright.

    python scripts/check_samples.py

Each page becomes one file with its samples at the lines where the page has them, so what pyright
says points into the page. This is basedpyright, which brings pyright and Node in wheels: nothing is
downloaded at run time. It checks as `standard`, the mode of pyright without settings.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent

# Samples that pyright rejects though they are right: the page, a part of the message, and why.
KNOWN: tuple[tuple[str, str, str], ...] = ()


def samples(page: Path) -> str:
    """Return the Python samples of a page; all other lines are empty."""
    kept: list[str] = []
    is_sample = False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            is_sample = line == "```python"
            kept.append("")
        else:
            kept.append(line if is_sample else "")
    return "\n".join(kept) + "\n"


def check(pages: list[Path]) -> list[tuple[str, int, str]]:
    """Return the page, line and message of every error."""
    with tempfile.TemporaryDirectory() as directory:
        names: dict[str, str] = {}
        for number, page in enumerate(pages):
            file = Path(directory, f"sample_{number}.py").resolve()
            file.write_text(samples(page), encoding="utf-8")
            names[str(file)] = page.relative_to(ROOT).as_posix()
        settings = {"typeCheckingMode": "standard", "include": ["."]}
        Path(directory, "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
        command = [sys.executable, "-m", "basedpyright", "-p", directory, "--outputjson"]
        done = subprocess.run(  # noqa: S603 (our own samples)
            [*command, "--pythonpath", sys.executable], capture_output=True, text=True, check=False
        )
    if done.returncode not in {0, 1}:
        raise SystemExit(f"basedpyright failed:\n{done.stdout}{done.stderr}")
    report: dict[str, Any] = json.loads(done.stdout)
    if report["summary"]["filesAnalyzed"] != len(pages):
        raise SystemExit(f"basedpyright saw {report['summary']['filesAnalyzed']} files")
    return [
        (names[one["file"]], one["range"]["start"]["line"] + 1, one["message"])
        for one in report["generalDiagnostics"]
        if one["severity"] == "error"
    ]


def main() -> int:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    pages = [page for page in pages if "```python" in page.read_text(encoding="utf-8")]
    used: set[tuple[str, str]] = set()
    errors = 0
    for page, line, message in check(pages):
        excuses = {(where, part) for where, part, _ in KNOWN if where == page and part in message}
        used |= excuses
        if not excuses:
            errors += 1
            print(f"{page}:{line}: {message}")
    for page, part, _ in KNOWN:
        if (page, part) not in used:
            errors += 1
            print(f"{page}: remove the known exception {part!r}: pyright accepts the samples")
    print(f"{len(pages)} pages, {errors} errors, {len(KNOWN)} known exceptions")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
