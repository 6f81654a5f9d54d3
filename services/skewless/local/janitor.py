"""Remove a folder once the process that holds our standard input is gone: `janitor.py FOLDER`."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

ATTEMPTS = 100


def main() -> None:
    """Wait for the end of the input, then remove the folder, also while its last writer is still dying."""
    folder = Path(sys.argv[1])
    sys.stdin.read()
    for _ in range(ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)


if __name__ == "__main__":
    main()
