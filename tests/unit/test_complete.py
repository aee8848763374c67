"""`pytest --complete` fails if a test is left out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = {
    "test_some.py": """\
import pytest
def test_runs(): pass
def test_other(): pass
@pytest.mark.skip
def test_skipped(): pass
@pytest.mark.xfail
def test_fails(): assert False
""",
    "test_none.py": "import pytest\npytest.skip(allow_module_level=True)",
}


def _run(directory: Path, *flags: str) -> tuple[int, list[str]]:
    """The exit status, and what is said to be left out."""
    for name, text in TESTS.items():
        (directory / name).write_text(text)
    call = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", "."]
    done = subprocess.run(  # noqa: S603 - the tests' own
        [*call, "-p", "xdist", "-p", "tests.complete", "-p", "no:cacheprovider", *flags],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    said = done.stdout.partition("left out, though --complete is given")[2].splitlines()
    return done.returncode, [one for one in said[1:] if one.startswith("test_")]


@pytest.mark.parametrize("jobs", ["0", "2"])
def test_a_run_that_leaves_out_a_test_fails(tmp_path: Path, jobs: str) -> None:
    status, left_out = _run(tmp_path, "--complete", "-n", jobs, "-k", "not other")
    assert status == pytest.ExitCode.TESTS_FAILED
    assert left_out == [
        "test_none.py",
        "test_some.py::test_fails",
        "test_some.py::test_other",
        "test_some.py::test_skipped",
    ]


def test_a_run_that_leaves_out_none_passes(tmp_path: Path) -> None:
    runs = ["test_some.py::test_runs", "test_some.py::test_other"]
    assert _run(tmp_path, "--complete", *runs) == (pytest.ExitCode.OK, [])


def test_a_run_need_not_be_complete(tmp_path: Path) -> None:
    assert _run(tmp_path) == (pytest.ExitCode.OK, [])
