"""Journal of the events of a run: one line per event, in a file and optionally on the terminal."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self


class Journal:
    """Lines with the seconds since the start, and counts of the events."""

    def __init__(self, file: Path, *, shown: bool = False) -> None:
        self._file = file.open("w", buffering=1)
        self._shown = shown
        self._began = time.monotonic()
        self.counts: Counter[str] = Counter()

    def write(self, what: str, *counted: str) -> None:
        """Write a line. `counted` are the counters that it increments."""
        line = f"{time.monotonic() - self._began:8.3f}  {what}"
        self._file.write(line + "\n")
        if self._shown:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
        self.counts.update(counted)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()
