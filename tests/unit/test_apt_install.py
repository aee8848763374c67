"""`scripts/apt-install` waits while somebody else uses the package manager."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "apt-install"
LOCKED = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)"


def _install(
    tmp_path: Path, *, failures: int, message: str, seconds: int = 600
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Install `tree` with an apt-get that fails at first; its end and the calls of apt-get."""
    programs = {
        "apt-get": f'echo "$@" >>{tmp_path}/calls\n'
        f"[ $(wc -l <{tmp_path}/calls) -gt {failures} ] && exit\necho '{message}' >&2\nexit 100\n",
        "sudo": 'exec "$@"\n',
        "sleep": "",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(  # noqa: S603 - the repository's own
        ["/bin/sh", str(SCRIPT), "tree"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "APT_LOCK_SECONDS": str(seconds)},
    )
    return done, [one.split("Timeout=")[1] for one in (tmp_path / "calls").read_text().splitlines()]


def test_a_lock_that_is_held_is_waited_for(tmp_path: Path) -> None:
    done, calls = _install(tmp_path, failures=2, message=LOCKED)
    assert done.returncode == 0
    assert calls == ["600 update"] * 3 + ["600 install -y --no-install-recommends tree"]
    assert done.stderr.count(LOCKED) == 2


def test_a_lock_is_not_waited_for_without_end(tmp_path: Path) -> None:
    done, calls = _install(tmp_path, failures=9, message=LOCKED, seconds=0)
    assert (done.returncode, calls) == (100, ["0 update"])


def test_any_other_failure_ends_it(tmp_path: Path) -> None:
    done, calls = _install(tmp_path, failures=1, message="E: Unable to locate package tree")
    assert (done.returncode, calls) == (100, ["600 update"])
    assert "Unable to locate" in done.stderr
