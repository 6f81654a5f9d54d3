"""Runs a command as an application of spark-submit: `spark-submit OPTIONS .../skewless/spark/__main__.py COMMAND ...`.

The commands and their options are those of `skewless`. Master, packages and memory are those of spark-submit. Without
spark-submit, `python -m skewless.spark COMMAND --master MASTER` does the same as `skewless COMMAND`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

COMMANDS = ("batch", "audit", "evaluate", "plan", "stream")
USAGE = f"usage: spark-submit OPTIONS {__file__} {'|'.join(COMMANDS)} ARGUMENTS"
WRONG_USE = 2


def problem(args: Sequence[str]) -> str | None:
    """Return what is wrong with the command line; None if it is valid so far."""
    if not args or args[0] not in COMMANDS:
        return USAGE
    try:
        importlib.import_module("skewless.cli.main")  # it needs packages other than Skewless
        from skewless.spark import submission
    except ImportError as error:
        return f"error: {sys.executable} has no package {error.name}: name the driver's Python in PYSPARK_DRIVER_PYTHON"
    names_master = any(arg == "--master" or arg.startswith("--master=") for arg in args)
    if not submission.is_submitted() and not names_master:
        return "error: no Spark master: start this with spark-submit, or name one with --master"
    return None


def main() -> None:
    """Run the command of this process's arguments, and end the process."""
    if text := problem(sys.argv[1:]):
        sys.stderr.write(f"{text}\n")
        sys.exit(WRONG_USE)
    from skewless.__main__ import run

    run()


if __name__ == "__main__":
    # spark-submit runs this file by its path. Modules of its folder would then hide those of other packages.
    sys.path[:] = [path for path in sys.path if path != str(Path(__file__).parent)]
    main()
