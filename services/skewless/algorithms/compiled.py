"""Machine code for loops in which each decision depends on the one before, so that numpy cannot do them at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numba

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` (numbers and numpy arrays only) at its first call; NUMBA_DISABLE_JIT=1 leaves it as it is.

    The machine code is kept on disk beside the module or in the user's cache folder; where neither can be written,
    as in a container with a read-only root, every process compiles for itself.
    """
    compile_: Callable[..., Any] = numba.njit
    try:
        result: Callable[P, R] = compile_(cache=True)(function)
    except RuntimeError:
        result = compile_()(function)
    return result
