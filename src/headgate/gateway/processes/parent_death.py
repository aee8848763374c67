"""Becomes a program that the kernel ends when the process that started it ends, however that does.

    python parent_death.py PARENT PROGRAM ARGUMENT ...

PARENT is the process's id. On Linux a process may ask for a signal when its parent is gone, and the
program that it becomes has it too. This is a script of its own because nothing of Python may run
between the fork and the exec of a process that has threads. It imports nothing of Headgate's.
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
        if os.getppid() != parent:  # it was gone before we had asked
            os._exit(1)
    try:
        os.execv(program, arguments[1:])  # noqa: S606 - no shell is wanted
    except OSError as error:
        sys.stderr.write(f"{program}: cannot be run: {error.strerror or error}\n")
        os._exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
