"""A command in a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import skewless

LIMIT_S = 180
PACKAGE = str(Path(skewless.__file__).parents[1])


class Terminal:
    """A pseudo-terminal in which a command runs."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self.descriptor = descriptor
        self.output = b""

    def read_until(self, text: bytes, times: int = 1) -> None:
        deadline = time.monotonic() + LIMIT_S
        ready = select.poll()  # not `select`, whose descriptors end at 1023: a process of many tests may have more
        ready.register(self.descriptor, select.POLLIN)
        while self.output.count(text) < times:
            assert time.monotonic() < deadline, self.output[-2000:]
            if ready.poll(1000):
                try:
                    self.output += os.read(self.descriptor, 65_536)
                except OSError:  # the process has ended
                    assert self.output.count(text) >= times, self.output[-2000:]

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


@contextmanager
def terminal(arguments: Sequence[str]) -> Iterator[Terminal]:
    """Run `skewless` with these arguments as the foreground process of a terminal of 80 x 24."""
    descriptor, other = pty.openpty()
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    path = os.pathsep.join(filter(None, (PACKAGE, os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(
        [sys.executable, "-c", LEADER, *arguments],
        stdin=other,
        stdout=other,
        stderr=other,
        env=os.environ | {"TERM": "xterm-256color", "PYTHONPATH": path},
        start_new_session=True,
    )
    try:
        yield Terminal(process, descriptor)
    finally:
        process.kill()
        process.wait()
        os.close(descriptor)
        os.close(other)


LEADER = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "skewless", *sys.argv[1:]])
"""
"""Makes the terminal the controlling one, so that Ctrl-C becomes SIGINT, and becomes the command."""
