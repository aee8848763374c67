"""Run a program that the kernel kills when its parent process ends.

    python parent_death.py PARENT PROGRAM ARGUMENT ...

PARENT is the process id. On Linux a process can request a signal for the death of its parent, and
the request survives exec. This is a separate script because no Python code may run between fork and
exec in a process with threads. It imports nothing of Headgate.
"""

import ctypes
import os
import signal
import sys

_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def main(arguments: list[str]) -> None:
    parent, program = int(arguments[0]), arguments[1]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # the parent ended before the request
            os._exit(1)
    try:
        os.execv(program, arguments[1:])  # noqa: S606 - without a shell
    except OSError as error:
        sys.stderr.write(f"{program}: cannot run: {error.strerror or error}\n")
        os._exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
