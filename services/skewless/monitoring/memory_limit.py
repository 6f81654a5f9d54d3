"""Memory that this process may use: the limit of its container, or the memory of the machine."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

CGROUP_FILES = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Files with the limit of the container, of version 2 and 1 of control groups."""


@cache
def memory_limit(files: Iterable[Path] = CGROUP_FILES) -> int:
    """Return the limit in bytes."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [machine]
    for file in files:
        with suppress(OSError, ValueError):  # there is no such file, or it contains `max`
            limits.append(int(file.read_text()))
    return min(limits)
