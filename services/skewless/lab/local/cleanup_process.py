"""Removes a folder when its parent closes the standard input or ends: `cleanup_process.py FOLDER`."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

MAX_ATTEMPTS = 100


def main() -> None:
    """Wait for the end of the input, then remove the folder. Retries while another process still writes to it."""
    folder = Path(sys.argv[1])
    sys.stdin.read()
    for _ in range(MAX_ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)


if __name__ == "__main__":
    main()
