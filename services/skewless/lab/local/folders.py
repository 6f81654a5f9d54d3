"""Folders of Skewless on this machine, the cache and the state of a running broker, and file locks."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

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


def create_writable(folder: Path) -> None:
    """Create a folder for state or a cache unless it exists. Raises ConfigurationError if it cannot be written."""
    reason = "is not writable"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        reason = f"cannot be created ({error.strerror})"
    raise ConfigurationError(
        f"{folder}: {reason}: set XDG_STATE_HOME (state of running processes) and SKEWLESS_CACHE (downloads) to "
        "folders that this user can write"
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
    create_writable(path.parent)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
