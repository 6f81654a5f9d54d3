"""Starts the command line, for `skewless` and `python -m skewless`."""

from __future__ import annotations

import signal

from skewless.cli.interrupts import end_at_once


def run() -> None:
    """Run the command of this process's arguments, and end the process, at Ctrl-C also while it imports modules."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)
    from skewless.cli.main import main

    main(prog_name="skewless")


if __name__ == "__main__":
    run()
