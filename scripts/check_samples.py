"""Check the types of the Python samples in README.md and docs/ with pyright.

    python -m scripts.check_samples

Each unit of samples becomes one file with the samples at the lines where the page has them, so
what pyright says points into the page. This is basedpyright, which brings pyright and Node in
wheels: nothing is downloaded at run time. It checks as `standard`, the mode of pyright without
settings.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from scripts.doc_samples import PAGES, ROOT, units

# Samples that pyright rejects though they are right: the page, a part of the message, and why.
KNOWN: tuple[tuple[str, str, str], ...] = ()


def check(pages: list[Path]) -> list[tuple[str, int, str]]:
    """Return the page, line and message of every error."""
    with tempfile.TemporaryDirectory() as directory:
        names: dict[str, str] = {}
        for page in pages:
            for unit in units(page):
                file = Path(directory, f"sample_{len(names)}.py").resolve()
                file.write_text(unit, encoding="utf-8")
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
    if report["summary"]["filesAnalyzed"] != len(names):
        raise SystemExit(f"basedpyright saw {report['summary']['filesAnalyzed']} files")
    return [
        (names[one["file"]], one["range"]["start"]["line"] + 1, one["message"])
        for one in report["generalDiagnostics"]
        if one["severity"] == "error"
    ]


def main() -> int:
    pages = [page for page in PAGES if units(page)]
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
