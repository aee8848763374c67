"""The `headgate` command, run in this process at a fixed time, and what it printed."""

import io
import os
import re
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from tests.golden.python_api import main
from tests.support.logs import restored_logs

CORPUS = Path(__file__).parent / "corpus"
ROOT = Path(__file__).parents[2]
NOW = 1_800_000_000
"""The time in all recordings that do not need the real one: 2027-01-15 08:00 UTC."""

WIDTH = "100"


@dataclass(frozen=True)
class Ran:
    """What a command ended with."""

    status: int
    out: str
    err: str

    def as_text(self, call: str) -> str:
        """The call and its output, as a terminal shows them."""
        return f"$ headgate {call}\n{self.out}{_stable(self.err)}exit status {self.status}\n\n"


def run(*arguments: str, typed: str = "", env: Mapping[str, str] | None = None) -> Ran:
    """Run `headgate` with *arguments*; *typed* is its standard input."""
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.dict(os.environ, _environment(env or {}), clear=True),
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed.encode()), encoding="utf-8")),
        patch("time.time_ns", lambda: NOW * 10**9),
        patch("time.time", lambda: float(NOW)),
        redirect_stdout(out),
        redirect_stderr(err),
        restored_logs(),
    ):
        status = main(list(arguments))
    return Ran(status, out.getvalue(), err.getvalue())


def _stable(message: str) -> str:
    """*message* as all versions of argparse write it: newer ones quote no choices."""
    return re.sub(r"\(choose from .*?\)", lambda found: found[0].replace("'", ""), message)


def _environment(added: Mapping[str, str]) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("HEADGATE_")}
    return {**kept, "COLUMNS": WIDTH, "NO_COLOR": "1", **added}


def cases(file: str) -> dict[str, str]:
    """The texts of a corpus file, by the name in the line `=== name` before each."""
    text = (CORPUS / file).read_text(encoding="utf-8")
    parts = re.split(r"^=== (.*)\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))
