"""Becomes another program, but in its own session and control group, and bound to die with its parent.

Run by path, before anything else is imported, because code between fork and exec is not safe in a threaded parent.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Arguments: the parent's id (0 = outlive it), cgroup.procs files, then -- and the command."""
    split = arguments.index("--")
    parent, process_files, command = int(arguments[0]), arguments[1:split], arguments[split + 1 :]
    os.setsid()
    if parent:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit("the parent ended before its child had started")
    for file in process_files:
        with open(file, "w") as group:  # noqa: PTH123 - pathlib would double the start-up time
            group.write(str(os.getpid()))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
