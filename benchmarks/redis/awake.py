"""Keep the processors awake while something is measured.

An idle processor sleeps, and one of a virtual machine takes 50 to 150 microseconds to wake up: a
lone check, which is two sleeps and two wake-ups, is then little else. So as many processes as there
are processors spin at idle priority: they run only when nobody else wants to, and give way at once.
It is the same for all contestants.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_SPIN = """
import os
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


@contextmanager
def processors_awake() -> Iterator[bool]:
    """Spin until the end of the block; whether that can be done here."""
    if not hasattr(os, "SCHED_IDLE"):
        yield False
        return
    spinning = [
        subprocess.Popen([sys.executable, "-c", _SPIN])  # noqa: S603 (ourselves)
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        yield True
    finally:
        for one in spinning:
            one.kill()
            one.wait()
