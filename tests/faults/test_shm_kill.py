"""Workers killed with SIGKILL, again and again: nothing minted, nothing torn, nobody stuck."""

import json
import subprocess
import sys
from pathlib import Path
from random import randrange
from secrets import token_hex

from headgate.stores.shm.file import path_of
from tests.support.faults.shm_killer import KEYS, QUOTA

KILLS = 60


def test_workers_killed_at_random_instants_leave_every_counter_whole() -> None:
    name, seed = f"kill-{token_hex(8)}", randrange(2**32)
    script = Path(__file__).parents[1] / "support" / "faults" / "shm_killer.py"
    call = [sys.executable, str(script), f"shm://{name}?timeout=10&size=4MB", str(KILLS), str(seed)]
    try:
        done = subprocess.run(  # noqa: S603
            call, capture_output=True, text=True, timeout=100, check=False
        )
    finally:
        path_of(name).unlink(missing_ok=True)
    case = f"seed {seed}: {done.stdout} {done.stderr}"
    assert done.returncode == 0, case
    found = json.loads(done.stdout)
    assert not any(found["ends"]), f"{case}: those who were not killed went on to the end"
    assert found["left"] == [[0], [0], [0], [0, 0], [0]], (
        f"{case}: all limits of a stack say the same"
    )
    assert found["admitted by the killed"] > KILLS / 2, f"{case}: they were at work"
    for admitted in found["admitted"]:
        # Killed after it was admitted and before it could say so: one at most for each kill.
        assert KEYS * QUOTA - found["killed"] <= admitted <= KEYS * QUOTA, case
