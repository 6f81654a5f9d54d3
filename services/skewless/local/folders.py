"""Where this machine keeps what is made once: the cache, the state of a running broker, and locks on both."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


def cache_folder() -> Path:
    """Folder of what can be made again: $SKEWLESS_CACHE, else $XDG_CACHE_HOME/skewless, else ~/.cache/skewless."""
    if named := os.environ.get("SKEWLESS_CACHE"):
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "skewless"


def state_folder() -> Path:
    """Folder of what says which broker runs: $XDG_STATE_HOME/skewless, else the cache folder."""
    base = os.environ.get("XDG_STATE_HOME")
    return Path(base) / "skewless" if base else cache_folder()


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file `path`, waiting for it; the kernel frees it when the process ends, however it ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
