"""Folders of Skewless on this machine, the cache and the state of a running broker, and file locks."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TextIO

from skewless.errors import ConfigurationError

UNWRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST}


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


def open_writable(path: Path, mode: Literal["a", "w"]) -> TextIO:
    """Open a file of state or of a cache, and create its folder. Raises ConfigurationError if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open(mode)
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        reason = error.strerror
    raise ConfigurationError(
        f"{path}: cannot be written ({reason}): set XDG_STATE_HOME (state of running processes) and SKEWLESS_CACHE "
        "(downloads) to folders whose files this user can write"
    )


def create_named(name: str, folder: Path) -> None:
    """Create a folder unless it exists. Raises ConfigurationError with the option or argument if it cannot be used."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise ConfigurationError(f"{name}: {folder}: cannot be created or written to: {error.strerror}") from None


@contextlib.contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on the file `path`; waits for it. The kernel releases it when the process ends."""
    with open_writable(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
