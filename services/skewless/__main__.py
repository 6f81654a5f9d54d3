"""Starts the command line, for `skewless` and `python -m skewless`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from skewless.cli.interrupts import end_at_once


def run() -> None:
    """Run the command of this process's arguments, and end the process, at Ctrl-C also while it imports modules."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the caller, and the next file would get its descriptor
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - until the end of the process
    from skewless.cli.main import main

    main(prog_name="skewless")


if __name__ == "__main__":
    run()
