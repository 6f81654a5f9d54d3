"""Folders of Skewless on this machine, the cache and the state of a running broker, and file locks."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


def cache_folder() -> Path:
    """Return the cache folder: $SKEWLESS_CACHE, else $XDG_CACHE_HOME/skewless, else ~/.cache/skewless."""
    if configured := os.environ.get("SKEWLESS_CACHE"):
        return Path(configured).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "skewless"


def state_folder() -> Path:
    """Return the folder for the state of the running broker: $XDG_STATE_HOME/skewless, else the cache folder."""
    base = os.environ.get("XDG_STATE_HOME")
    return Path(base) / "skewless" if base else cache_folder()


@contextlib.contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on the file `path`; waits for it. The kernel releases it when the process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
