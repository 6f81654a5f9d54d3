"""Runs a command that the kernel kills when its parent ends: `die_with_parent.py PARENT_PID COMMAND...`.

This is a separate program, because code between fork and exec can deadlock in a parent with threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Request SIGKILL for the death of the parent, then execute the command in this process."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the request
        sys.exit(1)
    try:
        os.execvp(command[0], command)  # noqa: S606 - the caller's own argument list, no shell
    except OSError as error:
        sys.exit(f"cannot start {command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
