"""What was done to a pipeline and when: one line per action, in a file and, if wanted, on the screen."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path


class Journal:
    """Lines with the seconds since the beginning, and counts of what happened."""

    def __init__(self, file: Path, *, shown: bool = False) -> None:
        self._file = file.open("w", buffering=1)
        self._shown = shown
        self._began = time.monotonic()
        self.counts: Counter[str] = Counter()

    def say(self, what: str, *counted: str) -> None:
        """Write a line; `counted` are the names of what it counts as."""
        line = f"{time.monotonic() - self._began:8.3f}  {what}"
        self._file.write(line + "\n")
        if self._shown:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
        self.counts.update(counted)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
