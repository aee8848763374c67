"""Let this process read the time from the file that MANUAL_TIME_FILE names.

The file holds nanoseconds since the epoch in 8 bytes, little-endian; who wants the time to pass
writes others. `time.monotonic` and `time.perf_counter` stay real: event loops and locks use them.
"""

import mmap
import os
import time

_SINCE_BOOT = 1_700_000_000 * 10**9
"""How far the monotonic clock is behind the wall clock, so that nobody takes one for the other."""


def _patch(path: str) -> None:
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib is not needed by every process
        shared = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)

    def time_ns() -> int:
        return int.from_bytes(shared[:8], "little")

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 10**9
    time.monotonic_ns = lambda: time_ns() - _SINCE_BOOT


if "MANUAL_TIME_FILE" in os.environ:
    _patch(os.environ["MANUAL_TIME_FILE"])
